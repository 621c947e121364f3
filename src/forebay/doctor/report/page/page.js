// The page itself: its theme, its copy buttons, its sortable tables. Nothing here is needed to read it.
"use strict";

(() => {
  const THEMES = ["auto", "light", "dark"];
  const button = document.getElementById("theme");

  const remembered = () => {
    try { return localStorage.getItem("forebay-theme"); } catch { return null; } // forbidden for files in some browsers
  };
  const remember = (theme) => {
    try { localStorage.setItem("forebay-theme", theme); } catch { /* then it is chosen anew next time */ }
  };
  const choose = (theme) => {
    if (theme === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    button.textContent = `Theme: ${theme}`;
    button.dataset.theme = theme;
    document.dispatchEvent(new Event("themechange"));
  };

  button.addEventListener("click", () => {
    const next = THEMES[(THEMES.indexOf(button.dataset.theme) + 1) % THEMES.length];
    choose(next);
    remember(next);
  });
  choose(THEMES.includes(remembered()) ? remembered() : "auto");
})();

(() => {
  const select = (element) => getSelection().selectAllChildren(element);

  const copied = async (element) => {
    try {
      await navigator.clipboard.writeText(element.textContent);
      return true;
    } catch { // an old browser, or one that does not trust files
      select(element);
      return document.execCommand("copy");
    }
  };

  for (const button of document.querySelectorAll(".copy")) {
    button.addEventListener("click", async () => {
      button.textContent = (await copied(button.parentElement.querySelector("code"))) ? "Copied" : "Press Ctrl-C";
      setTimeout(() => { button.textContent = "Copy"; }, 1600);
    });
  }
})();

(() => {
  const value = (row, column) => row.cells[column].dataset.value;
  const compare = (one, other) => {
    const numbers = [Number(one), Number(other)];
    return numbers.some(Number.isNaN) ? one.localeCompare(other, "en", { numeric: true }) : numbers[0] - numbers[1];
  };

  for (const table of document.querySelectorAll("table.sortable")) {
    const headings = [...table.tHead.rows[0].cells];
    headings.forEach((heading, column) => heading.addEventListener("click", () => {
      const numeric = heading.classList.contains("number");
      const before = heading.getAttribute("aria-sort");
      const rising = before ? before === "descending" : !numeric; // numbers start with the largest
      const rows = [...table.tBodies[0].rows];
      rows.sort((one, other) => (rising ? 1 : -1) * compare(value(one, column), value(other, column)));
      table.tBodies[0].append(...rows);
      headings.forEach((other) => other.removeAttribute("aria-sort"));
      heading.setAttribute("aria-sort", rising ? "ascending" : "descending");
    }));
  }
})();

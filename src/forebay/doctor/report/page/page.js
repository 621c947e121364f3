// Theme, copy buttons and sortable tables. The page is readable without this script.
"use strict";

(() => {
  const THEMES = ["auto", "light", "dark"];
  const button = document.getElementById("theme");

  const remembered = () => {
    try { return localStorage.getItem("forebay-theme"); } catch { return null; } // some browsers forbid storage for local files
  };
  const remember = (theme) => {
    try { localStorage.setItem("forebay-theme", theme); } catch { /* storage is forbidden: the choice is not saved */ }
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
    } catch { // an old browser, or one that gives local files no clipboard access
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
      const rising = before ? before === "descending" : !numeric; // the first click on a number column sorts the largest first
      const rows = [...table.tBodies[0].rows];
      rows.sort((one, other) => (rising ? 1 : -1) * compare(value(one, column), value(other, column)));
      table.tBodies[0].append(...rows);
      headings.forEach((other) => other.removeAttribute("aria-sort"));
      heading.setAttribute("aria-sort", rising ? "ascending" : "descending");
    }));
  }
})();

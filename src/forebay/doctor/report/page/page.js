// Theme button, copy buttons and sortable tables. The page can be read without this script.
"use strict";

(() => {
  const THEMES = ["auto", "light", "dark"];
  const button = document.getElementById("theme");

  const readTheme = () => {
    try { return localStorage.getItem("forebay-theme"); } catch { return null; } // some browsers forbid storage for local files
  };
  const saveTheme = (theme) => {
    try { localStorage.setItem("forebay-theme", theme); } catch { /* storage is forbidden: the choice is not saved */ }
  };
  const applyTheme = (theme) => {
    if (theme === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    button.textContent = `Theme: ${theme}`;
    button.dataset.theme = theme;
    document.dispatchEvent(new Event("themechange"));
  };

  button.addEventListener("click", () => {
    const next = THEMES[(THEMES.indexOf(button.dataset.theme) + 1) % THEMES.length];
    applyTheme(next);
    saveTheme(next);
  });
  applyTheme(THEMES.includes(readTheme()) ? readTheme() : "auto");
})();

(() => {
  const selectText = (element) => getSelection().selectAllChildren(element);

  /** Copy the text of an element, and return whether that worked. If not, the text stays selected. */
  const copyText = async (element) => {
    try {
      await navigator.clipboard.writeText(element.textContent);
      return true;
    } catch { // old browsers have no clipboard object, and some deny it to local files
      selectText(element);
      return document.execCommand("copy");
    }
  };

  for (const button of document.querySelectorAll(".copy")) {
    button.addEventListener("click", async () => {
      button.textContent = (await copyText(button.parentElement.querySelector("code"))) ? "Copied" : "Press Ctrl-C";
      setTimeout(() => { button.textContent = "Copy"; }, 1600);
    });
  }
})();

(() => {
  const cellValue = (row, column) => row.cells[column].dataset.value;
  const compare = (first, second) => {
    const numbers = [Number(first), Number(second)];
    return numbers.some(Number.isNaN) ? first.localeCompare(second, "en", { numeric: true }) : numbers[0] - numbers[1];
  };

  for (const table of document.querySelectorAll("table.sortable")) {
    const headings = [...table.tHead.rows[0].cells];
    headings.forEach((heading, column) => heading.addEventListener("click", () => {
      const isNumeric = heading.classList.contains("number");
      const presentOrder = heading.getAttribute("aria-sort");
      // A second click reverses the order. The first click sorts numbers largest first, and texts from A to Z.
      const isAscending = presentOrder ? presentOrder === "descending" : !isNumeric;
      const rows = [...table.tBodies[0].rows];
      rows.sort((first, second) => (isAscending ? 1 : -1) * compare(cellValue(first, column), cellValue(second, column)));
      table.tBodies[0].append(...rows);
      headings.forEach((other) => other.removeAttribute("aria-sort"));
      heading.setAttribute("aria-sort", isAscending ? "ascending" : "descending");
    }));
  }
})();

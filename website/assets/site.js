// What is wider than the window can be scrolled by keys.
document$.subscribe(() => {
  for (const code of document.querySelectorAll(".md-typeset pre > code")) code.tabIndex = 0;
  for (const table of document.querySelectorAll(".md-typeset__scrollwrap")) {
    table.tabIndex = 0;
    table.setAttribute("role", "group");
    table.setAttribute("aria-label", "Table");
  }
});

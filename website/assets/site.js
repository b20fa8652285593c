// Tables that are wider than the window can be scrolled by keys.
document$.subscribe(() => {
  for (const scrolled of document.querySelectorAll(".md-typeset__scrollwrap")) {
    scrolled.tabIndex = 0;
    scrolled.setAttribute("role", "group");
    scrolled.setAttribute("aria-label", "Table");
  }
});

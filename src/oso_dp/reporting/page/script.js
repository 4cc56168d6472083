// Sorting and filtering by DataTables; opens the folded section that a link points to.
for (const table of document.querySelectorAll("table.sort")) {
  const rows = table.tBodies[0].rows.length;
  new DataTable(table, {
    paging: false, info: false, autoWidth: false, order: [],
    layout: { topStart: rows > 8 ? "search" : null, topEnd: null, bottomStart: null, bottomEnd: null },
    language: { search: "", searchPlaceholder: "filter rows" },
  });
}
function openTarget() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!target) return;
  for (let node = target; node; node = node.parentElement) if (node.tagName === "DETAILS") node.open = true;
  target.scrollIntoView();
}
addEventListener("hashchange", openTarget);
openTarget();

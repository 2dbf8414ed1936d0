#!/bin/sh
# SPDX-License-Identifier: MIT
# The site of the documentation: docs_site_test.sh SOURCE BUILD. It is made whole; a link to nothing and a page that the index lacks
# are told.
set -eu
source=$1 build=$2
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
"$source/scripts/docs-site" "$build" "$scratch/html" >/dev/null
for page in index first-hour methods reference search; do
  [ -s "$scratch/html/$page.html" ] || { echo "docs_site_test: there is no $page.html"; exit 1; }
done
grep -q 'href="measuring.html"' "$scratch/html/compare.html" || { echo "docs_site_test: docs/measuring.md is no link in compare.html"; exit 1; }
mkdir "$scratch/tree" "$scratch/tree/scripts"
cp -R "$source/docs" "$scratch/tree/docs"
cp "$source/scripts/docs-site" "$scratch/tree/scripts/"
refused() { # what must be said
  if "$scratch/tree/scripts/docs-site" "$build" "$scratch/html" >"$scratch/out" 2>&1; then echo "docs_site_test: not refused: $1"; exit 1; fi
  grep -q "$1" "$scratch/out" || { echo "docs_site_test: '$1' is not said:"; cat "$scratch/out"; exit 1; }
}
echo '# New' >"$scratch/tree/docs/new-page.md"
refused 'docs/index.md does not list new-page.md'
rm "$scratch/tree/docs/new-page.md"
echo 'See [nothing](no-such-page.md).' >>"$scratch/tree/docs/tp.md"
refused 'no-such-page.md'

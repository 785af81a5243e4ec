#!/usr/bin/env bash
# The page of `pinion report --html` in headless Chromium: every part is there, nothing is wider than a phone, and it
# prints. PINION_KEEP_PAGES=DIR keeps the page and its pictures.
only_family=openmpi
chromium=$(command -v chromium || command -v chromium-headless-shell || command -v google-chrome) || {
  echo "skipped: there is no chromium"
  exit 77
}
. "$(dirname "$0")/common.bash"

browse() {
  timeout 120 "$chromium" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --user-data-dir="$work/profile" \
    --hide-scrollbars --virtual-time-budget=20000 "$@" 2>"$work/browser.err" || fail "chromium: $(tail -3 "$work/browser.err")"
}

under "--device emulated" 2 "$examples/fft3d" --grid 64x64x64 --iterations 6
verified || fail "fft3d: $(cat "$work/out" "$work/err")"
page=$work/report.html
"$pinion" report "$work/log" --html "$page" >/dev/null || fail "no page"

# A frame as wide as a phone; its document tells how wide it became, and its headings.
cat >"$work/frame.html" <<'FRAME'
<iframe src="report.html" width="390" height="800" onload="
  const d = this.contentDocument, e = d.documentElement;
  const cut = [...d.querySelectorAll('.wide, .plots')].filter(part => part.scrollWidth > part.clientWidth);
  document.body.append(`[width ${e.scrollWidth} cut ${cut.length} plots ${d.querySelectorAll('svg.plot').length}]`);
  d.querySelectorAll('h2').forEach(h => document.body.append(`[${h.textContent}]`));"></iframe>
FRAME
browse --allow-file-access-from-files --dump-dom "file://$work/frame.html" >"$work/dom"
width=$(grep -o '\[width [0-9]*' "$work/dom" | cut -d' ' -f2)
[ -n "$width" ] && [ "$width" -le 390 ] || fail "on a phone the page is ${width:-no} pixels wide: $(cat "$work/dom")"
grep -q ' cut 0 ' "$work/dom" || fail "on a phone, tables or plots are cut: $(cat "$work/dom")"
grep -q 'plots [5-9]\]' "$work/dom" || fail "plots are missing: $(cat "$work/dom")"
for heading in 'Registered memory over time' 'Ranks over time' 'Time lost to registration' 'What if' 'Call sites'; do
  grep -q "\[$heading" "$work/dom" || fail "no heading '$heading'"
done
browse --no-pdf-header-footer --print-to-pdf="$work/report.pdf" "file://$page"
head -c 5 "$work/report.pdf" | grep -q '%PDF-' || fail "it does not print"
if [ -n "${PINION_KEEP_PAGES:-}" ]; then
  browse --window-size=1120,2600 --screenshot="$work/wide.png" "file://$page"
  browse --window-size=500,4200 --screenshot="$work/phone.png" "file://$page"
  browse --window-size=1120,2600 --blink-settings=preferredColorScheme=0 --screenshot="$work/dark.png" "file://$page"
  cp -r "$work"/report.* "$work"/*.png "$work/log" "$PINION_KEEP_PAGES"
fi
[ "$failures" -eq 0 ]

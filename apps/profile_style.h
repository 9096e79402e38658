// SPDX-License-Identifier: Apache-2.0
// The style sheet of the profile's page. Colours are told apart by readers who do not see red and
// green, and each set has its own shades for light and dark.
#pragma once

namespace lacuna {

inline constexpr const char* kProfileStyle = R"css(
:root {
  color-scheme: light dark;
  --page: #ffffff; --card: #f4f6f8; --ink: #1a1f26; --soft: #59636f; --line: #dfe4e9;
  --base: #8e98a4; --hover: #00000010;
  --sparse: #1f5fa8; --dense: #cdd5dd; --dense-edge: #7d8894;
  --routed: #0d7d6c; --shared: #a8359c;
  --k0: #d3d9df; --k1: #39424e; --k2: #909ba7; --k3: #b89a6a;
  --c0: #2f6db5; --c1: #e58a1f; --c2: #148567; --c3: #b23d8d; --c4: #d6b428; --c5: #62b5d9;
  --c6: #5d48a8; --c7: #93343c; --cx: #9aa3ad;
  --t0: #fff; --t1: #111; --t2: #fff; --t3: #fff; --t4: #111; --t5: #111; --t6: #fff; --t7: #fff;
  --tx: #111;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #13161b; --card: #1d2128; --ink: #e6eaef; --soft: #a3adb9; --line: #2e353e;
    --base: #6c7784; --hover: #ffffff14;
    --sparse: #62a8ee; --dense: #3b434e; --dense-edge: #8d98a5;
    --routed: #3cc3ad; --shared: #ea86dd;
    --k0: #3a424d; --k1: #d2d9e1; --k2: #7d8896; --k3: #a88a58;
    --c0: #6aa5ea; --c1: #f2a03f; --c2: #3dbb97; --c3: #e283c2; --c4: #e8cf57; --c5: #a4def5;
    --c6: #a894f2; --c7: #e2808a; --cx: #8a949f;
    --t0: #111; --t2: #111; --t3: #111; --t6: #111; --t7: #111;
  }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
main { max-width: 1064px; margin: 0 auto; padding: 28px 16px 48px; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 4px; overflow-wrap: anywhere; }
h2 { font-size: 1.2rem; margin: 44px 0 4px; }
p { margin: 6px 0; max-width: 76ch; }
.soft, figcaption, dt { color: var(--soft); }
.facts { display: flex; flex-wrap: wrap; gap: 2px 22px; margin: 10px 0 18px; font-size: .9rem; }
.facts div { display: flex; gap: 6px; }
.facts dt, .facts dd { margin: 0; }
.facts dd { overflow-wrap: anywhere; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(210px, 1fr)); gap: 12px;
  margin: 0 0 18px; }
.card { background: var(--card); border-radius: 10px; padding: 12px 16px; }
.card .name { color: var(--soft); font-size: .9rem; }
.card .big { font-size: 1.85rem; font-weight: 650; line-height: 1.25; white-space: nowrap; }
.card .big small { font-size: 1rem; font-weight: 400; }
.card .under { font-size: .9rem; }
figure { margin: 10px 0 0; }
figcaption { font-size: .9rem; max-width: 76ch; }
.legend { display: flex; flex-wrap: wrap; gap: 2px 18px; margin: 8px 0 4px; font-size: .9rem; }
.legend span { display: inline-flex; align-items: center; gap: 6px; }
.legend svg, .swatch { width: 14px; height: 14px; flex: none; }
.phone { display: none; }
@media (max-width: 640px) { .desktop { display: none; } .phone { display: block; } }
.desktop svg, .phone svg { display: block; width: 100%; height: auto; }
svg text { font-size: 12.5px; fill: var(--ink); font-variant-numeric: tabular-nums; }
svg text.axis { fill: var(--soft); }
.phone svg text { font-size: 11px; }
.grid { stroke: var(--line); stroke-width: 1; }
.base { stroke: var(--base); stroke-width: 1; }
.bracket { stroke: var(--base); stroke-width: 2; }
.hit { fill: transparent; }
.col:hover .hit { fill: var(--hover); }
.step:hover rect { opacity: .75; }
.sparse { fill: var(--sparse); }
.dense { fill: var(--dense); stroke: var(--dense-edge); stroke-width: 1; }
.ghost { fill: var(--dense); }
.rest { fill: var(--dense-edge); }
.skipped { fill: url(#skipped); stroke: var(--dense-edge); stroke-width: 1; }
.routed { fill: var(--routed); } .shared { fill: var(--shared); }
line.range { stroke-width: 2; opacity: .45; }
line.routed { stroke: var(--routed); } line.shared { stroke: var(--shared); }
.k0 { fill: var(--k0); } .k1 { fill: var(--k1); } .k2 { fill: var(--k2); } .k3 { fill: var(--k3); }
.c0 { fill: var(--c0); } .c1 { fill: var(--c1); } .c2 { fill: var(--c2); } .c3 { fill: var(--c3); }
.c4 { fill: var(--c4); } .c5 { fill: var(--c5); } .c6 { fill: var(--c6); } .c7 { fill: var(--c7); }
.cx { fill: var(--cx); }
svg text.in { pointer-events: none; }
svg text.c0 { fill: var(--t0); } svg text.c1 { fill: var(--t1); } svg text.c2 { fill: var(--t2); }
svg text.c3 { fill: var(--t3); } svg text.c4 { fill: var(--t4); } svg text.c5 { fill: var(--t5); }
svg text.c6 { fill: var(--t6); } svg text.c7 { fill: var(--t7); } svg text.cx { fill: var(--tx); }
.patterns { position: absolute; width: 0; height: 0; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
th { color: var(--soft); font-weight: 500; text-align: right; }
th, td { padding: 3px 10px 3px 0; border-bottom: 1px solid var(--line); text-align: right;
  white-space: nowrap; }
th.left, td.left { text-align: left; }
.parts { width: 100%; margin-top: 14px; }
.parts td.left .swatch { vertical-align: -2px; margin-right: 8px; }
.parts .bars { width: 45%; }
.parts .bars svg { display: block; width: 100%; height: 14px; }
.scroll { overflow-x: auto; }
details { margin-top: 28px; }
summary { cursor: pointer; font-weight: 600; }
.glossary dt { color: var(--ink); font-weight: 600; margin-top: 10px; }
.glossary dd { margin: 0; max-width: 76ch; }
@media (max-width: 640px) {
  .cards { grid-template-columns: 1fr 1fr; }
  .card { padding: 10px 12px; }
  .card .big { font-size: 1.35rem; }
  .card .big small { font-size: .8rem; }
  .parts .bars { width: 30%; }
}
)css";

}  // namespace lacuna

/* SPDX-License-Identifier: MIT
 * html_head.c - what a page of a report begins with: its title, its style, and the script that sorts tables:
 * see model.h. */
#include <string.h>

#include "lab/report/model.h"

static const char page_style[] =
    "*{box-sizing:border-box}html{color-scheme:light dark}body{margin:0 auto;max-width:1360px;padding:20px "
    "16px 48px;background:var(--paper);color:var(--ink);font:15px/1.5 system-ui,sans-serif}\n"
    "h1{font-size:clamp(18px,2vw,23px);line-height:1.3;margin:0 0 2px}.verdict{font-size:clamp(15px,1.5vw,"
    "18px);line-height:1.45;font-weight:600;margin:10px 0 12px;max-width:90ch}\n"
    "h2{font-size:18px;margin:26px 0 8px;padding-top:10px;border-top:1px solid var(--grid)}"
    "h3{font-size:15px;margin:0 0 4px}p{margin:0 0 "
    "10px}.soft,caption,figcaption{color:var(--soft);font-size:13px}h1,h3,p,.soft{overflow-wrap:anywhere}\n"
    ".strip{display:flex;flex-wrap:wrap;gap:8px;list-style:none;margin:0 0 8px;padding:0}.strip "
    "li{border:1px solid "
    "var(--grid);border-left:4px solid var(--c,var(--soft));border-radius:6px;padding:2px "
    "10px;background:var(--panel)}"
    ".strip b{font-size:17px}\n"
    ".charts{columns:2 480px;column-gap:16px}"
    "figure{margin:0 0 16px;padding:12px;border:1px solid "
    "var(--grid);border-radius:8px;background:var(--paper);min-width:0;"
    "break-inside:avoid}figure svg{display:block;width:100%;height:auto;margin:0 auto}\n"
    ".wide{overflow:auto;max-height:70vh}table{border-collapse:separate;border-spacing:0;font-size:13px;"
    "font-variant-numeric:tabular-nums}"
    "caption{text-align:left;padding:0 0 6px}th,td{padding:4px 10px 4px 0;text-align:left;border-bottom:1px "
    "solid var(--grid);background:var(--paper);"
    "white-space:nowrap}th{position:sticky;top:0;z-index:1;font-weight:600;vertical-align:bottom}.n{text-"
    "align:right}tr>:first-child{position:sticky;left:0;z-index:1}thead "
    "tr>:first-child{z-index:2}td.text{white-space:normal;min-width:12em}"
    "tbody tr:hover td{background:var(--panel)}tr.sim "
    "td{font-style:italic;color:var(--soft)}b.good,b.bad{color:var(--c)}\n"
    "th button{font:inherit;color:inherit;background:none;border:0;padding:0;cursor:pointer;text-align:"
    "inherit}th[aria-sort=ascending] button::after{content:\" \\25B2\"}th[aria-sort=descending] "
    "button::after{content:\" "
    "\\25BC\"}:focus-visible{outline:2px solid var(--s0);outline-offset:2px}\n"
    "details{margin:8px 0}summary{cursor:pointer;color:var(--soft);font-size:13px}h2+details>summary,."
    "more>summary{font-size:15px}.more>.charts{margin-top:12px}pre{white-space:pre-wrap;"
    "overflow-wrap:anywhere;background:var(--panel);padding:8px "
    "10px;border-radius:6px;font-size:13px;margin:0 "
    "0 8px}ul{margin:0 0 8px;padding-left:22px}li{overflow-wrap:anywhere}\n"
    "@media(max-width:600px){body{padding:12px 10px 32px}figure{padding:8px}th,td{padding-right:7px}table{"
    "font-size:12px}svg text{font-size:13px}caption{position:sticky;left:0;max-width:calc(100vw - 20px);"
    "white-space:normal}table{min-width:0}}\n"
    "@media print{@page{size:A4 landscape;margin:12mm}body{max-width:none;padding:0;font-size:11px}.wide{max-"
    "height:none;overflow:visible}th,tr>:first-child{position:static}th,td{white-space:normal;font-size:9px;"
    "padding:2px 9px 2px 0}table{max-width:100%}.charts{columns:3}figure svg{max-width:100% "
    "!important}details:not([open]){display:none}h2{break-after:avoid}tr,pre,li{break-inside:avoid}}\n";

/* Sorts by number where both cells begin with one, else by text; a second press turns the order round. */
const char bs_html_script[] =
    "for (const table of document.querySelectorAll('table')) {\n"
    "  const head = [...table.tHead.rows[0].cells];\n"
    "  head.forEach((th, column) => {\n"
    "    const button = document.createElement('button');\n"
    "    button.type = 'button';\n"
    "    button.append(...th.childNodes);\n"
    "    th.append(button);\n"
    "    th.setAttribute('aria-sort', 'none');\n"
    "    button.addEventListener('click', () => {\n"
    "      const up = th.getAttribute('aria-sort') !== 'ascending';\n"
    "      head.forEach((other) => other.setAttribute('aria-sort', 'none'));\n"
    "      th.setAttribute('aria-sort', up ? 'ascending' : 'descending');\n"
    "      const text = (row) => row.cells[column].textContent;\n"
    "      const order = (a, b) => {\n"
    "        const x = parseFloat(a), y = parseFloat(b);\n"
    "        return isNaN(x) || isNaN(y) ? a.localeCompare(b) : x - y;\n"
    "      };\n"
    "      const rows = [...table.tBodies[0].rows];\n"
    "      rows.sort((a, b) => (up ? 1 : -1) * order(text(a), text(b)));\n"
    "      table.tBodies[0].append(...rows);\n"
    "    });\n"
    "  });\n"
    "}\n";

void bs_html_head(bs_text *out, const char *title, const char *of, const char *style) {
  bs_text_printf(out,
                 "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                 "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
                 "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
                 "'unsafe-inline'; script-src 'unsafe-inline'; img-src data:\">\n<title>");
  bs_svg_escape(out, title);
  bs_text_printf(out, " - Block-Shock %s</title>\n<link rel=\"icon\" href=\"data:,\">\n<style>\n", of);
  bs_text_append(out, bs_svg_style, strlen(bs_svg_style));
  bs_text_append(out, page_style, strlen(page_style));
  bs_text_append(out, style, strlen(style));
  bs_text_printf(out, "</style>\n</head>\n<body>\n");
}

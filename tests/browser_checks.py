"""Checks that run inside a page: contrast of text (WCAG AA), and controls without a name."""

CONTRAST = """() => {
  const numbers = (text) => {
    const found = text.match(/[\\d.]+/g).map(Number);
    return text.startsWith('color(') ? [...found.slice(0, 3).map((c) => 255 * c), ...found.slice(3)] : found;
  };
  const light = (c) => { c /= 255; return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; };
  const luminance = ([r, g, b]) => 0.2126 * light(r) + 0.7152 * light(g) + 0.0722 * light(b);
  const behind = (node) => {
    for (let n = node; n; n = n.parentElement) {
      const found = numbers(getComputedStyle(n).backgroundColor);
      if (found.length === 3 || found[3] > 0.5) return found;
    }
    return [255, 255, 255];
  };
  const poor = new Set();
  for (const node of document.querySelectorAll('main *, header *, footer *')) {
    const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim());
    if (!own || !node.checkVisibility() || node.closest('svg, button[disabled], .canvas')) continue;
    const style = getComputedStyle(node), a = luminance(numbers(style.color)), b = luminance(behind(node));
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    const large = parseFloat(style.fontSize) >= 24;
    if (ratio < (large ? 3 : 4.5)) poor.add(node.tagName + '.' + node.className + ' ' + ratio.toFixed(2));
  }
  return [...poor];
}"""

NAMELESS = """() => [...document.querySelectorAll('main button, main select, main input, header button, [role=img], [role=region], a')]
  .filter((n) => n.checkVisibility())
  .filter((n) => !(n.getAttribute('aria-label') || n.textContent.trim() || (n.labels && n.labels.length)))
  .map((n) => n.outerHTML.slice(0, 120))"""

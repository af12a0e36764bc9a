// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! A flame graph as SVG: a box per function and caller, as wide as its figure, callees above it. A click enlarges.

use std::collections::BTreeMap;
use std::fmt::Write as _;

const WIDTH: f64 = 1200.0;
const HEIGHT: f64 = 17.0;
/// Narrower boxes are left out.
const NARROWEST: f64 = 0.4;
/// Pixels of a letter.
const LETTER: f64 = 6.6;

#[derive(Default)]
struct Node<'a> {
    value: u64,
    callees: BTreeMap<&'a str, Node<'a>>,
}

/// Replaces what XML gives a meaning.
pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// The image; `None` if there is nothing to draw.
pub(crate) fn svg(title: &str, unit: &str, stacks: &[Vec<String>], values: &[u64]) -> Option<String> {
    let mut root = Node::default();
    for (stack, &value) in stacks.iter().zip(values).filter(|(_, value)| **value > 0) {
        root.value += value;
        let mut node = &mut root;
        for name in stack {
            node = node.callees.entry(name).or_default();
            node.value += value;
        }
    }
    if root.value == 0 {
        return None;
    }
    let scale = WIDTH / root.value as f64;
    let mut boxes = String::new();
    let deepest = draw(&mut boxes, "all", &root, (0.0, 0), scale, (root.value, unit));
    let height = (deepest + 1) as f64 * HEIGHT + 30.0;
    let base = height - HEIGHT - 4.0;
    Some(format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"monospace\" font-size=\"11\">\n\
         <text x=\"4\" y=\"15\" font-size=\"14\">{}</text>\n\
         <g id=\"flame\" transform=\"translate(0 {base})\">\n{boxes}</g>\n\
         <script><![CDATA[{SCRIPT}]]></script>\n</svg>\n",
        escaped(title)
    ))
}

/// Draws a node and all above it; how deep that went.
fn draw(
    out: &mut String,
    name: &str,
    node: &Node<'_>,
    (x, depth): (f64, usize),
    scale: f64,
    (total, unit): (u64, &str),
) -> usize {
    let width = node.value as f64 * scale;
    if width < NARROWEST {
        return depth;
    }
    let y = -(depth as f64) * HEIGHT;
    // Warm colours, the same for the same name.
    let shade = name.bytes().fold(17u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(u32::from(byte)));
    let (green, blue) = (110 + shade % 110, shade / 110 % 60);
    let share = 100.0 * node.value as f64 / total as f64;
    let letters = (width / LETTER) as usize;
    let shown: String = if name.chars().count() <= letters {
        name.to_owned()
    } else if letters > 3 {
        name.chars().take(letters - 1).chain(['…']).collect()
    } else {
        String::new()
    };
    let _ = writeln!(
        out,
        "<g data-x=\"{x:.2}\" data-w=\"{width:.2}\" data-n=\"{0}\"><title>{0}: {1} {unit}, {share:.1} %</title>\
         <rect x=\"{x:.2}\" y=\"{y}\" width=\"{width:.2}\" height=\"{2}\" rx=\"2\" fill=\"rgb(240,{green},{blue})\"/>\
         <text x=\"{3:.2}\" y=\"{4}\">{5}</text></g>",
        escaped(name),
        node.value,
        HEIGHT - 1.0,
        x + 3.0,
        y + 12.0,
        escaped(&shown)
    );
    let (mut deepest, mut next) = (depth, x);
    for (name, callee) in &node.callees {
        deepest = deepest.max(draw(out, name, callee, (next, depth + 1), scale, (total, unit)));
        next += callee.value as f64 * scale;
    }
    deepest
}

const SCRIPT: &str = "
for (const g of document.querySelectorAll('#flame > g')) g.addEventListener('click', () => {
  const from = +g.dataset.x, width = +g.dataset.w, scale = 1200 / width;
  for (const o of document.querySelectorAll('#flame > g')) {
    const x = (o.dataset.x - from) * scale, w = o.dataset.w * scale;
    const left = Math.max(x, 0), wide = Math.min(x + w, 1200) - left;
    o.style.display = wide > 0.3 ? '' : 'none';
    const [, rect, text] = o.children;
    rect.setAttribute('x', left); rect.setAttribute('width', Math.max(wide, 0));
    text.setAttribute('x', left + 3);
    const room = Math.floor(wide / 6.6), name = o.dataset.n;
    text.textContent = name.length <= room ? name : room > 3 ? name.slice(0, room - 1) + '…' : '';
  }
});
";

#[cfg(test)]
mod tests {
    use super::svg;

    #[test]
    fn boxes_are_as_wide_as_their_figures() {
        let stacks =
            [vec!["main".to_owned(), "a<b>".to_owned()], vec!["main".to_owned(), "c".to_owned()], vec![]];
        let image = svg("t", "bytes", &stacks, &[300, 100, 0]).unwrap();
        assert!(image.contains("data-w=\"900.00\" data-n=\"a&lt;b&gt;\""), "{image}");
        assert!(image.contains("data-x=\"900.00\" data-w=\"300.00\" data-n=\"c\""), "{image}");
        assert!(image.contains("main: 400 bytes, 100.0 %"), "{image}");
        assert!(svg("t", "bytes", &stacks, &[0, 0, 0]).is_none());
    }
}

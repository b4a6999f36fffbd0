//! Plots as SVG: lines with marks, and bars.

use super::escape;
use super::plot::{Axis, Plot};
use std::fmt::Write;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 360.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 24.0;
const BOTTOM: f64 = 56.0;
/// Colours that the colour-blind tell apart and that print dark; beside them differ dash and mark.
const INK: [(&str, &str); 3] = [("#00508f", ""), ("#b34700", "6 4"), ("#111", "2 3")];

struct Frame {
    x: Axis,
    y: Axis,
}

impl Frame {
    fn at(&self, (x, y): (f64, f64)) -> (f64, f64) {
        let across = LEFT + x / self.x.end * (WIDTH - LEFT - RIGHT);
        (across, HEIGHT - BOTTOM - y / self.y.end * (HEIGHT - TOP - BOTTOM))
    }

    fn left_axis(&self, out: &mut String, title: &str) {
        for mark in self.y.marks() {
            let (_, y) = self.at((0.0, mark));
            let _ = write!(
                out,
                "<line x1=\"{LEFT}\" x2=\"{}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#ccc\"/>\
                 <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                WIDTH - RIGHT,
                LEFT - 6.0,
                y + 4.0,
                self.y.text(mark)
            );
        }
        let middle = (TOP + HEIGHT - BOTTOM) / 2.0;
        let title = escape(title);
        let _ = write!(
            out,
            "<text class=\"axis\" transform=\"translate(16 {middle}) rotate(-90)\" text-anchor=\"middle\">{title}</text>"
        );
    }
}

fn open(title: &str) -> String {
    let title = escape(title);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{title}\" \
         font-family=\"system-ui,sans-serif\" font-size=\"12\" fill=\"#111\"><title>{title}</title>"
    )
}

/// Lines with marks. Each mark tells its values.
pub fn draw(plot: &Plot) -> String {
    let all = || plot.series.iter().flat_map(|series| series.points.iter());
    let most = |of: fn(&(f64, f64)) -> f64| all().map(of).fold(0.0, f64::max);
    let frame = Frame { x: Axis::holding(most(|point| point.0)), y: Axis::holding(most(|point| point.1)) };
    let mut out = open(plot.title);
    frame.left_axis(&mut out, plot.y);
    for mark in frame.x.marks() {
        let (x, y) = frame.at((mark, 0.0));
        let text = frame.x.text(mark);
        let _ = write!(out, "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{text}</text>", y + 18.0);
    }
    let middle = (LEFT + WIDTH - RIGHT) / 2.0;
    let (title, bottom) = (escape(plot.x), HEIGHT - 14.0);
    let _ = write!(out, "<text class=\"axis\" x=\"{middle}\" y=\"{bottom}\" text-anchor=\"middle\">{title}</text>");
    for (index, series) in plot.series.iter().enumerate() {
        let (ink, dash) = INK[index % INK.len()];
        let line: Vec<String> = series.points.iter().map(|point| pair(frame.at(*point))).collect();
        let line = line.join(" ");
        let _ = write!(
            out,
            "<polyline points=\"{line}\" fill=\"none\" stroke=\"{ink}\" stroke-width=\"2\" stroke-dasharray=\"{dash}\"/>"
        );
        for point in &series.points {
            mark(
                &mut out,
                index,
                frame.at(*point),
                ink,
                "point",
                &format!("{}: {:.3} at {:.0}", series.name, point.1, point.0),
            );
        }
        let y = TOP + 14.0 + 18.0 * index as f64;
        mark(&mut out, index, (LEFT + 20.0, y - 4.0), ink, "key", series.name);
        let _ = write!(out, "<text x=\"{}\" y=\"{y}\">{}</text>", LEFT + 32.0, escape(series.name));
    }
    out.push_str("</svg>");
    out
}

fn pair((x, y): (f64, f64)) -> String {
    format!("{x:.1},{y:.1}")
}

/// A circle, a square or a triangle. `class` is "point" for what was measured and "key" for the legend.
fn mark(out: &mut String, index: usize, (x, y): (f64, f64), ink: &str, class: &str, tells: &str) {
    let tells = escape(tells);
    let _ = match index % 3 {
        0 => write!(
            out,
            "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"{ink}\"><title>{tells}</title></circle>"
        ),
        1 => write!(
            out,
            "<rect class=\"{class}\" x=\"{:.1}\" y=\"{:.1}\" width=\"8\" height=\"8\" fill=\"#fff\" stroke=\"{ink}\" \
             stroke-width=\"2\"><title>{tells}</title></rect>",
            x - 4.0,
            y - 4.0
        ),
        _ => write!(
            out,
            "<path class=\"{class}\" d=\"M{x:.1} {:.1}l5 9h-10z\" fill=\"{ink}\"><title>{tells}</title></path>",
            y - 6.0
        ),
    };
}

/// Two bars a cell: read dark, write hatched.
pub fn bars(title: &str, unit: &str, cells: &[(&str, (f64, f64))]) -> String {
    let most = cells.iter().map(|(_, (read, write))| read.max(*write)).fold(0.0, f64::max);
    let frame = Frame { x: Axis { end: cells.len() as f64, step: 1.0 }, y: Axis::holding(most) };
    let mut out = open(title);
    out.push_str(
        "<defs><pattern id=\"hatch\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\">\
         <rect width=\"6\" height=\"6\" fill=\"#fff\"/><line x1=\"0\" y1=\"0\" x2=\"0\" y2=\"6\" stroke=\"#b34700\" stroke-width=\"4\"/>\
         </pattern></defs>",
    );
    frame.left_axis(&mut out, &format!("throughput, {unit}"));
    let longest = cells.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0) as f64;
    let slot = (WIDTH - LEFT - RIGHT) / cells.len().max(1) as f64;
    for (index, (name, (read, write))) in cells.iter().enumerate() {
        let index = index as f64;
        for (from, value, fill, what) in [(0.12, read, "#00508f", "read"), (0.5, write, "url(#hatch)", "write")] {
            let (left, top) = frame.at((index + from, *value));
            let (right, bottom) = frame.at((index + from + 0.38, 0.0));
            let (width, height) = (right - left, bottom - top);
            let tells = escape(&format!("{name}: {what} {value:.1} {unit}"));
            let _ = write!(
                out,
                "<rect class=\"point\" x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" \
                 fill=\"{fill}\" stroke=\"#111\" stroke-width=\"0.5\"><title>{tells}</title></rect>"
            );
        }
        let (x, y) = frame.at((index + 0.5, 0.0));
        let name = escape(name);
        // Long names do not fit side by side: a letter of this size takes some six pixels.
        let (turned, anchor) = if longest * 6.0 > slot { (-20, "end") } else { (0, "middle") };
        let _ = write!(
            out,
            "<text transform=\"translate({x:.1} {:.1}) rotate({turned})\" text-anchor=\"{anchor}\" font-size=\"10\">{name}</text>",
            y + 14.0
        );
    }
    let middle = (LEFT + WIDTH - RIGHT) / 2.0;
    let bottom = HEIGHT - 12.0;
    let _ = write!(
        out,
        "<text class=\"axis\" x=\"{middle}\" y=\"{bottom}\" text-anchor=\"middle\">cell (plain: read, hatched: write)</text></svg>"
    );
    out
}

//! Draws allocation and queue over time as an SVG: two panels over one time axis, without scripts or fonts.

use std::fmt::Write;

use crate::report::Point;
use crate::requests::RequestPoint;

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 480.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 16.0;
/// Position and height of the panels.
const ALLOCATION: Panel = Panel {
    top: 48.0,
    height: 220.0,
};
const QUEUE: Panel = Panel {
    top: 308.0,
    height: 120.0,
};

#[derive(Clone, Copy)]
struct Panel {
    top: f64,
    height: f64,
}

/// Draws a run. The caller escapes control characters in `title`.
pub fn svg(title: &str, points: &[Point]) -> String {
    let hours = points
        .last()
        .map_or(1.0, |point| point.hours)
        .max(f64::MIN_POSITIVE);
    let longest = points.iter().map(|point| point.waiting).fold(1.0, f64::max);
    let longest = round_up(longest);
    let x = |point: &Point| LEFT + (WIDTH - LEFT - RIGHT) * point.hours / hours;
    let line = |panel: Panel, top: f64, value: fn(&Point) -> f64| -> String {
        let pairs = points.iter().map(|point| {
            let y = panel.top + panel.height * (1.0 - (value(point) / top).clamp(0.0, 1.0));
            format!("{:.1},{y:.1}", x(point))
        });
        pairs.collect::<Vec<_>>().join(" ")
    };
    let mut svg = head(title);
    axes(&mut svg, ALLOCATION, "GPUs granted", "100 %");
    axes(&mut svg, QUEUE, "jobs that wait", &format!("{longest:.0}"));
    polyline(
        &mut svg,
        &line(ALLOCATION, 100.0, |point| point.pct),
        "#1f6feb",
    );
    polyline(
        &mut svg,
        &line(QUEUE, longest, |point| point.waiting),
        "#bf5700",
    );
    time_axis(&mut svg, hours);
    svg + "</svg>\n"
}

/// Draws a service: requests that came, what its ready replicas serve, and requests that wait.
pub fn request_svg(title: &str, served: f64, points: &[RequestPoint]) -> String {
    let last = points.last().map_or(1.0, |point| point.second as f64);
    let capacity = |point: &RequestPoint| f64::from(point.ready) * served;
    let highest = |value: &dyn Fn(&RequestPoint) -> f64| {
        round_up(points.iter().map(value).fold(1.0, f64::max))
    };
    let most = highest(&|point| capacity(point).max(point.offered));
    let longest = highest(&|point| point.waiting);
    let line = |panel: Panel, top: f64, value: &dyn Fn(&RequestPoint) -> f64| -> String {
        let pairs = points.iter().map(|point| {
            let x = LEFT + (WIDTH - LEFT - RIGHT) * point.second as f64 / last;
            let y = panel.top + panel.height * (1.0 - (value(point) / top).clamp(0.0, 1.0));
            format!("{x:.1},{y:.1}")
        });
        pairs.collect::<Vec<_>>().join(" ")
    };
    let mut svg = head(title);
    let name = "requests per second that come (blue), and that ready replicas serve (green)";
    axes(&mut svg, ALLOCATION, name, &format!("{most:.0}"));
    axes(
        &mut svg,
        QUEUE,
        "requests that wait",
        &format!("{longest:.0}"),
    );
    for (panel, top, value, colour) in [
        (
            ALLOCATION,
            most,
            &capacity as &dyn Fn(&RequestPoint) -> f64,
            "#2da44e",
        ),
        (
            ALLOCATION,
            most,
            &|point: &RequestPoint| point.offered,
            "#1f6feb",
        ),
        (
            QUEUE,
            longest,
            &|point: &RequestPoint| point.waiting,
            "#bf5700",
        ),
    ] {
        polyline(&mut svg, &line(panel, top, value), colour);
    }
    time_axis(&mut svg, last / 3600.0);
    svg + "</svg>\n"
}

fn head(title: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#fff\"/>\n\
         <text x=\"{LEFT}\" y=\"24\" font-size=\"15\">{}</text>\n",
        escaped(title)
    )
}

fn axes(svg: &mut String, panel: Panel, name: &str, top: &str) {
    let Panel { top: y, height } = panel;
    let (bottom, right, label) = (y + height, WIDTH - RIGHT, LEFT - 6.0);
    let _ = write!(
        svg,
        "<path d=\"M{LEFT} {y}V{bottom}H{right}\" fill=\"none\" stroke=\"#888\"/>\n\
         <path d=\"M{LEFT} {y}H{right}\" stroke=\"#ddd\"/>\n\
         <text x=\"{label}\" y=\"{:.1}\" text-anchor=\"end\">{top}</text>\n\
         <text x=\"{label}\" y=\"{bottom}\" text-anchor=\"end\">0</text>\n\
         <text x=\"{LEFT}\" y=\"{:.1}\" fill=\"#555\">{name}</text>\n",
        y + 4.0,
        y - 6.0
    );
}

fn polyline(svg: &mut String, points: &str, colour: &str) {
    let _ = writeln!(
        svg,
        "<polyline points=\"{points}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\"/>"
    );
}

/// Labels begin, middle and end, in days if there are many hours.
fn time_axis(svg: &mut String, hours: f64) {
    let (unit, scale) = if hours > 72.0 {
        ("days", 24.0)
    } else {
        ("hours", 1.0)
    };
    let y = QUEUE.top + QUEUE.height + 20.0;
    for (part, anchor) in [(0.0, "start"), (0.5, "middle"), (1.0, "end")] {
        let x = LEFT + (WIDTH - LEFT - RIGHT) * part;
        let at = hours * part / scale;
        let _ = writeln!(
            svg,
            "<text x=\"{x:.1}\" y=\"{y}\" text-anchor=\"{anchor}\">{at:.1} {unit}</text>"
        );
    }
}

/// Rounds up to 1, 2 or 5 times a power of ten.
fn round_up(value: f64) -> f64 {
    let magnitude = 10f64.powf(value.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * magnitude);
    steps
        .into_iter()
        .find(|step| *step >= value)
        .unwrap_or(value)
}

fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;");
    text.replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_curves_lie_within_their_panels_and_titles_are_text() {
        let point = |hours, pct, waiting| Point {
            hours,
            gpus: pct,
            pct,
            waiting,
        };
        let svg = svg(
            "a <b> & c",
            &[
                point(0.0, 0.0, 0.0),
                point(1.0, 100.0, 3.0),
                point(2.0, 50.0, 4.0),
            ],
        );
        assert!(svg.contains("a &lt;b&gt; &amp; c"), "{svg}");
        assert!(
            svg.contains("points=\"64.0,268.0 504.0,48.0 944.0,158.0\""),
            "{svg}"
        );
        assert!(
            svg.contains("points=\"64.0,428.0 504.0,356.0 944.0,332.0\""),
            "{svg}"
        );
        assert!(
            svg.contains(">5</text>") && svg.contains("2.0 hours"),
            "{svg}"
        );
    }

    #[test]
    fn the_top_of_an_axis_is_a_round_number() {
        for (value, top) in [(1.0, 1.0), (4.0, 5.0), (51.0, 100.0), (1200.0, 2000.0)] {
            assert_eq!(round_up(value), top);
        }
    }
}

//! Formatting of numbers: [`Scale`] chooses the unit, [`decimals`] the number of digits.
//!
//! A figure has as many digits as its interval supports: the last digit printed is about a tenth of
//! the interval's width. A share that no try or every try is in is shown as a count with the
//! resulting bound. Any other zero is `0` with its unit, without decimals. Every output format
//! takes its numbers from here, so that the page, the table and the terminal agree to the last
//! digit.

use crate::schema::{Cell, Estimate, PublishedFigure, Ratio, Results};
use crate::task::Params;

/// Placeholder for a missing value.
pub const NOTHING: &str = "–";

/// Maximum number of decimals.
const MOST_DECIMALS: usize = 3;

/// The smallest value that [`MOST_DECIMALS`] can show.
const SMALLEST: f64 = 0.001;

/// A unit that suits a magnitude: the factor and the suffix.
#[derive(Debug, Clone, PartialEq)]
pub struct Scale {
    factor: f64,
    suffix: String,
}

impl Scale {
    /// Returns the scale for a figure of about `magnitude`, given in `unit`.
    ///
    /// Nanoseconds become µs, ms or s; a share becomes per cent; bytes per second become kB/s, MB/s
    /// or GB/s (powers of ten); other rates take k and M. An unknown unit is not changed.
    pub fn of(unit: &str, magnitude: f64) -> Self {
        let size = magnitude.abs();
        let (factor, suffix) = match unit {
            "ns" if size >= 1e9 => (1e-9, "s".into()),
            "ns" if size >= 1e6 => (1e-6, "ms".into()),
            "ns" if size >= 1e3 => (1e-3, "µs".into()),
            "share" => (100.0, "%".into()),
            "bytes/s" if size >= 1e9 => (1e-9, "GB/s".into()),
            "bytes/s" if size >= 1e6 => (1e-6, "MB/s".into()),
            "bytes/s" if size >= 1e3 => (1e-3, "kB/s".into()),
            "bytes/s" => (1.0, "B/s".into()),
            _ if unit.ends_with("/s") && size >= 1e6 => (1e-6, format!("M {unit}")),
            _ if unit.ends_with("/s") && size >= 1e4 => (1e-3, format!("k {unit}")),
            _ => (1.0, unit.into()),
        };
        Self { factor, suffix }
    }

    /// Formats `value`, given in the original unit, with `decimals` and without the unit. Zero has
    /// no decimals. Another value has more digits if it would otherwise be shown as 0, and is
    /// compared with the smallest value that can be shown if even these do not suffice.
    pub fn number(&self, value: f64, decimals: usize) -> String {
        if !value.is_finite() {
            return NOTHING.into();
        }
        let value = value * self.factor;
        if value == 0.0 {
            return "0".into();
        }
        match (decimals..=MOST_DECIMALS).find(|&digits| !is_lost(value, digits)) {
            Some(digits) => grouped(value, digits),
            None if value > 0.0 => format!("< {}", grouped(SMALLEST, MOST_DECIMALS)),
            None => format!("> {}", grouped(-SMALLEST, MOST_DECIMALS)),
        }
    }

    pub fn with_unit(&self, value: f64, decimals: usize) -> String {
        self.join(&self.number(value, decimals))
    }

    /// Returns the number of decimals for an interval of `width`, given in the original unit.
    /// Without a width, returns the number for three significant digits of `value`.
    pub fn decimals(&self, value: f64, width: Option<f64>) -> usize {
        decimals(value * self.factor, width.map(|width| width * self.factor))
    }

    fn join(&self, number: &str) -> String {
        if number == NOTHING || self.suffix.is_empty() {
            number.into()
        } else {
            format!("{number} {}", self.suffix)
        }
    }
}

/// A formatted figure with its interval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormattedFigure {
    /// The figure and its unit, such as `113.5 ns`.
    pub value: String,
    /// Both ends in the same unit, such as `113.4 – 113.6 ns`. Empty if there is no interval.
    pub interval: String,
}

impl FormattedFigure {
    /// Formats a figure in `unit`, with its interval if there is one.
    pub fn new(unit: &str, value: f64, interval: Option<(f64, f64)>) -> Self {
        let scale = Scale::of(unit, value);
        let digits = scale.decimals(value, interval.map(|(low, high)| high - low));
        let interval = interval.map_or_else(String::new, |(low, high)| {
            scale.join(&format!("{} – {}", scale.number(low, digits), scale.number(high, digits)))
        });
        Self { value: scale.with_unit(value, digits), interval }
    }

    pub fn of_cell(cell: &Cell) -> Option<Self> {
        Self::shared(cell, false)
    }

    /// Formats a share or, with `not`, its complement. The result is a count if all or none of the
    /// tries are in the share. Any other cell is formatted as usual.
    fn shared(cell: &Cell, not: bool) -> Option<Self> {
        let (estimate, ends) = (cell.estimate?, ends(cell));
        let (share, ends) = match not {
            true => (1.0 - estimate, ends.map(|(low, high)| (1.0 - high, 1.0 - low))),
            false => (estimate, ends),
        };
        let tries: usize = cell.invocations.iter().map(|one| one.summary.tries()).sum();
        match ends {
            Some(ends) if cell.unit == "share" && tries > 0 && [0.0, 1.0].contains(&share) => {
                Some(Self::of_tries(share, tries, ends))
            }
            _ => Some(Self::new(&cell.unit, share, ends)),
        }
    }

    /// Formats the share of a cell's tries that are not in it.
    pub fn of_rest(cell: &Cell) -> Option<Self> {
        Self::shared(cell, true)
    }

    /// Formats a share of 0 or 1 as a count of `tries`, with the end of its interval.
    fn of_tries(share: f64, tries: usize, (low, high): (f64, f64)) -> Self {
        let (did, interval) = if share == 0.0 {
            (0, format!("at most {}", tick("share", outward(high))))
        } else {
            (tries, format!("at least {}", tick("share", 1.0 - outward(1.0 - low))))
        };
        let value = format!("{} of {}", grouped(did as f64, 0), grouped(tries as f64, 0));
        Self { value, interval }
    }

    /// Formats a figure of [`crate::stats`].
    pub fn of_estimate(unit: &str, estimate: Estimate) -> Self {
        Self::new(unit, estimate.value, Some((estimate.low, estimate.high)))
    }

    pub fn of_published(unit: &str, published: &PublishedFigure) -> Self {
        Self::new(unit, published.value, published.low.zip(published.high))
    }

    /// Returns `113.5 ns (113.4 – 113.6 ns)`, or the figure alone.
    pub fn in_line(&self) -> String {
        if self.interval.is_empty() {
            self.value.clone()
        } else {
            format!("{} ({})", self.value, self.interval)
        }
    }
}

pub fn ends(cell: &Cell) -> Option<(f64, f64)> {
    cell.low.zip(cell.high)
}

/// Rounds a bound up to two digits, or to the last decimal that is shown.
fn outward(bound: f64) -> f64 {
    // The step is at least as coarse as the digits of a percentage.
    let step = 10_f64.powf(bound.log10().floor() - 1.0).max(1e-5);
    // A bound that already has two digits is not raised by an error of the division.
    ((bound / step - 1e-9).ceil() * step).min(1.0)
}

/// Formats a single figure in a suitable unit, to three significant digits.
pub fn single(unit: &str, value: f64) -> String {
    FormattedFigure::new(unit, value, None).value
}

/// Formats a round figure for an axis, such as `200 ns` or `0.5 µs`, without trailing zeros. A rate
/// or another quotient keeps only its prefix, such as `5 M`, because its unit is too long for each
/// tick.
pub fn tick(unit: &str, value: f64) -> String {
    let mut scale = Scale::of(unit, value);
    if unit.contains('/') {
        scale.suffix = scale.suffix.trim_end_matches(unit).trim_end().into();
    }
    let number = scale.number(value, 3);
    let short = match number.split_once('.') {
        Some(_) => number.trim_end_matches('0').trim_end_matches('.'),
        None => &number,
    };
    scale.join(short)
}

/// Formats a quotient, such as `3.21×`, with its interval. The distance to the nearer end decides
/// the digits: based on the width, `1.7× (1.6× – 104×)` would become `2× (2× – 104×)`.
pub fn times(value: f64, low: f64, high: f64) -> FormattedFigure {
    let plain = decimals(value, Some(high - low));
    let near = (value - low).min(high - value);
    let digits = match near.log10() {
        power if power.is_finite() => {
            plain.max((-power).ceil().clamp(0.0, MOST_DECIMALS as f64) as usize)
        }
        _ => plain,
    };
    let scale = Scale { factor: 1.0, suffix: String::new() };
    let end = |end: f64| {
        let far = decimals(end, Some(2.0 * (end - value).abs()));
        scale.number(end, far.min(digits).max(plain))
    };
    FormattedFigure {
        value: format!("{}×", scale.number(value, digits)),
        interval: format!("{}× – {}×", end(low), end(high)),
    }
}

/// Returns the ratio whose numerator is this cell, under the same parameters.
pub fn ratio_of<'a>(cell: &Cell, results: &'a Results) -> Option<&'a Ratio> {
    ratios_of(cell, results).next()
}

/// Returns the ratio of two cells, or `None` if the run did not pair them.
pub fn ratio_between<'a>(above: &Cell, below: &Cell, results: &'a Results) -> Option<&'a Ratio> {
    let alike = (&above.experiment, &above.params, &above.metric)
        == (&below.experiment, &below.params, &below.metric);
    let mut ratios = ratios_of(above, results).filter(|_| alike);
    ratios.find(|ratio| denominator(&ratio.name) == below.variant)
}

/// Returns the ratios of a cell. A ratio names no metric, because it belongs to the first metric of
/// the variant.
fn ratios_of<'a>(cell: &Cell, results: &'a Results) -> impl Iterator<Item = &'a Ratio> {
    let first = results.cells.iter().find(|other| {
        (&other.experiment, &other.variant, &other.params)
            == (&cell.experiment, &cell.variant, &cell.params)
    });
    let is_first = first.is_some_and(|first| first.metric == cell.metric);
    results.ratios.iter().filter(move |ratio| {
        is_first
            && ratio.experiment == cell.experiment
            && ratio.params == cell.params
            && numerator(&ratio.name) == cell.variant
    })
}

/// Returns the left side of `numerator / denominator`.
pub fn numerator(name: &str) -> &str {
    name.split_once(" / ").map_or(name, |(left, _)| left)
}

/// Returns the right side of `numerator / denominator`, or an empty string if there is none.
pub fn denominator(name: &str) -> &str {
    name.split_once(" / ").map_or("", |(_, right)| right)
}

/// Formats parameters, such as `senders 2, size 1,024 bytes`. Returns an empty string if there are
/// none.
pub fn params(params: &Params) -> String {
    let word = |(name, value): (&String, &String)| match (name.as_str(), value.parse::<u32>()) {
        ("size", Ok(bytes)) => format!("{name} {} bytes", grouped(bytes.into(), 0)),
        _ => format!("{name} {value}"),
    };
    params.iter().map(word).collect::<Vec<_>>().join(", ")
}

/// Returns the number of decimals for which the last digit is about a tenth of `width`. Without a
/// width, returns the number for three significant digits of `value`. The result is between 0 and
/// [`MOST_DECIMALS`].
fn decimals(value: f64, width: Option<f64>) -> usize {
    let digits = match width {
        Some(width) if width > 0.0 && width.is_finite() => (-width.log10()).ceil() + 1.0,
        _ if value != 0.0 && value.is_finite() => 2.0 - value.abs().log10().floor(),
        _ => 0.0,
    };
    digits.clamp(0.0, MOST_DECIMALS as f64) as usize
}

fn is_lost(value: f64, decimals: usize) -> bool {
    value != 0.0 && value.abs() * 10_f64.powi(decimals as i32) < 0.5
}

fn grouped(value: f64, decimals: usize) -> String {
    let plain = format!("{:.decimals$}", value.abs());
    let (whole, fraction) = plain.split_once('.').unwrap_or((&plain, ""));
    let mut out = String::new();
    // A value rounded to zero has no sign.
    if value < 0.0 && plain.bytes().any(|b| (b'1'..=b'9').contains(&b)) {
        out.push('−');
    }
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    if !fraction.is_empty() {
        out.push('.');
        out.push_str(fraction);
    }
    out
}

/// Escapes text for Markdown, so that it can neither end a table's field nor begin markup.
pub fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '|' | '\\' | '`' | '*' | '_' | '[' | ']' | '<' | '>' | '#' => {
                out.push('\\');
                out.push(c);
            }
            '\n' | '\r' => out.push(' '),
            _ => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn number_of_digits_depends_on_the_interval() {
        let shown =
            |low, value, high| FormattedFigure::new("ns", value, Some((low, high))).in_line();
        assert_eq!(shown(113.45, 113.53, 113.61), "113.53 ns (113.45 – 113.61 ns)");
        assert_eq!(shown(112.0, 113.53, 115.0), "113.5 ns (112.0 – 115.0 ns)");
        assert_eq!(shown(90.0, 113.53, 140.0), "114 ns (90 – 140 ns)");
        assert_eq!(shown(28_163.27, 28_168.28, 28_173.29), "28.168 µs (28.163 – 28.173 µs)");
        assert_eq!(shown(-2.0, -1.0, 0.0), "−1.0 ns (−2.0 – 0 ns)");
    }

    /// Regression: the low end of `13 µs (0.025 – 25 µs)` was shown as 0, as if a message took no
    /// time, and a tail of 0.4 ns next to a wide interval was shown as `0 ns`.
    #[test]
    fn only_zero_interval_ends_print_as_zero() {
        let shown =
            |low, value, high| FormattedFigure::new("ns", value, Some((low, high))).in_line();
        assert_eq!(shown(25.0, 13_100.0, 25_000.0), "13 µs (0.03 – 25 µs)");
        assert_eq!(shown(0.0, 13_100.0, 25_000.0), "13 µs (0 – 25 µs)");
        assert_eq!(shown(0.4, 0.4, 60.0), "0.4 ns (0.4 – 60 ns)");
    }

    /// Regression: zero was shown as `0`, `0.0` or `0.00`, depending on its neighbours' digits.
    #[test]
    fn zero_has_one_notation() {
        let shown =
            |low, value, high| FormattedFigure::new("s", value, Some((low, high))).in_line();
        assert_eq!(shown(0.0, 1.162, 3.742), "1.2 s (0 – 3.7 s)");
        assert_eq!(shown(0.0, 0.0, 0.2), "0 s (0 – 0.20 s)");
        for unit in ["s", "ns", "share", "messages/s", "bytes/s"] {
            let zero = single(unit, 0.0);
            assert!(zero.starts_with("0 ") && tick(unit, 0.0).starts_with('0'), "{zero}");
        }
        assert_eq!((single("ns", -0.0), single("", 0.0)), ("0 ns".into(), "0".into()));
        assert_eq!(single("ns", 0.000_1), "< 0.001 ns");
        assert_eq!(single("ns", -0.000_1), "> −0.001 ns");
    }

    /// Regression: `0 % (0 – 0 %)` claimed a certainty that thirty kills cannot give.
    #[test]
    fn share_of_zero_or_one_prints_tries_and_bound() {
        let mut cell = fixture::small().cells.remove(0);
        cell.unit = "share".into();
        assert_eq!(cell.invocations.len(), 10);
        let mut lines = |each: f64, (count, batch): (usize, usize), (low, high): (f64, f64)| {
            (cell.estimate, cell.low, cell.high) = (Some(each), Some(low), Some(high));
            for one in &mut cell.invocations {
                (one.summary.count, one.summary.batch) = (count, batch);
            }
            let all = [FormattedFigure::of_cell(&cell), FormattedFigure::of_rest(&cell)];
            all.map(|shown| shown.expect("a figure").in_line())
        };
        let none = lines(0.0, (50, 20), (0.0, 0.000_368_8));
        assert_eq!(none, ["0 of 10,000 (at most 0.037 %)", "10,000 of 10,000 (at least 99.963 %)"]);
        let all = lines(1.0, (30, 1), (0.987_8, 1.0));
        assert_eq!(all, ["300 of 300 (at least 98.7 %)", "0 of 300 (at most 1.3 %)"]);
        let few = lines(0.0, (1, 1), (0.0, 0.31));
        assert_eq!(few, ["0 of 10 (at most 31 %)", "10 of 10 (at least 69 %)"]);
        assert_eq!(lines(0.1, (30, 1), (0.0, 0.25)), ["10 % (0 – 25 %)", "90 % (75 – 100 %)"]);
        for bound in [1.0, 0.5, 0.123, 0.012_31, 0.000_01, 3e-9] {
            let outward = outward(bound);
            assert!(outward >= bound && outward <= (bound * 1.1).max(1e-5), "{bound}: {outward}");
        }
    }

    /// Regression: a ratio with two modes on one side was shown as `2× (2× – 104×)`.
    #[test]
    fn quotient_digits_depend_on_the_nearer_interval_end() {
        let shown = |value, low, high| times(value, low, high).in_line();
        assert_eq!(shown(1.72, 1.61, 104.2), "1.7× (1.6× – 104×)");
        assert_eq!(shown(1.593_8, 0.183_4, 4.753_6), "1.6× (0.2× – 4.8×)");
        assert_eq!(shown(28.2, 27.354, 28.764), "28.2× (27.4× – 28.8×)");
        assert_eq!(shown(992.0, 810.0, 1_110.0), "992× (810× – 1,110×)");
        assert_eq!(shown(1.0, 1.0, 40.0), "1× (1× – 40×)");
        assert_eq!(shown(1.7, 0.03, 104.0), "2× (0.03× – 104×)");
    }

    #[test]
    fn units_follow_the_magnitude() {
        assert_eq!(single("ns", 0.25), "0.250 ns");
        assert_eq!(single("ns", 2_500_000_000.0), "2.50 s");
        assert_eq!(single("share", 0.2), "20.0 %");
        assert_eq!(single("messages/s", 12_345_678.0), "12.3 M messages/s");
        assert_eq!(single("bytes/s", 5_213_000_000.0), "5.21 GB/s");
        assert_eq!(single("bytes/s", 48_000_000.0), "48.0 MB/s");
        assert_eq!(single("bytes/s", 640.0), "640 B/s");
        assert_eq!(single("cycles", 1_200.0), "1,200 cycles");
        assert_eq!(single("", 7.0), "7.00");
    }

    #[test]
    fn non_finite_figure_prints_as_empty() {
        assert_eq!(single("ns", f64::NAN), NOTHING);
        assert_eq!(single("ns", f64::INFINITY), NOTHING);
        assert_eq!(single("ns", 0.0), "0 ns");
    }

    #[test]
    fn ticks_have_no_trailing_zeros() {
        assert_eq!(tick("ns", 100.0), "100 ns");
        assert_eq!(tick("ns", 2_500.0), "2.5 µs");
        assert_eq!(tick("share", 0.0), "0 %");
        assert_eq!(tick("messages/s", 12_500_000.0), "12.5 M");
        assert_eq!(tick("bytes/s", 2_000_000_000.0), "2 GB/s");
        assert_eq!(tick("signals/signal", 20.0), "20");
    }

    #[test]
    fn large_numbers_have_thousands_separators() {
        assert_eq!(grouped(1_234_567.5, 1), "1,234,567.5");
        assert_eq!(grouped(-999.0, 0), "−999");
        assert_eq!(grouped(-0.4, 0), "0");
    }

    #[test]
    fn parameters_are_shown_with_units_and_grouping() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let some = Params::from([pair("senders", "2"), pair("size", "1048576")]);
        assert_eq!(params(&some), "senders 2, size 1,048,576 bytes");
        assert_eq!(params(&Params::from([pair("pacing", "hot")])), "pacing hot");
    }

    #[test]
    fn ratio_is_split_into_numerator_and_denominator() {
        assert_eq!(numerator("zmq-ipc / flag-one-line"), "zmq-ipc");
        assert_eq!(denominator("zmq-ipc / flag-one-line"), "flag-one-line");
        assert_eq!(times(3.214, 3.1, 3.3).in_line(), "3.21× (3.10× – 3.30×)");
    }
}

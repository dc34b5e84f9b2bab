//! Tests of many rows at once: [`false_discovery`], [`each`].
//!
//! On average, five of a hundred rows without any difference are outside a 95 % interval. Each
//! decision is therefore corrected for the number of rows to which it applies.

/// Returns the confidence that each of `rows` intervals needs so that all of them hold together
/// with `confidence` (Bonferroni).
pub fn each(confidence: f64, rows: usize) -> f64 {
    1.0 - (1.0 - confidence) / rows.max(1) as f64
}

/// Returns Benjamini and Hochberg's adjusted values, in the order of `p`. If the rows with an
/// adjusted value of at most 0.05 are rejected, at most 5 % of the rejections are false on average.
pub fn false_discovery(p: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|&a, &b| p[a].total_cmp(&p[b]));
    let mut adjusted = vec![1.0; p.len()];
    let mut least = 1.0_f64;
    for (rank, &index) in order.iter().enumerate().rev() {
        least = least.min(p[index] * p.len() as f64 / (rank + 1) as f64);
        adjusted[index] = least;
    }
    adjusted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adjusted_p_values_agree_with_calculation_by_hand() {
        let adjusted = false_discovery(&[0.04, 0.01, 0.03, 0.9]);
        for (found, by_hand) in adjusted.iter().zip([0.16 / 3.0, 0.04, 0.16 / 3.0, 0.9]) {
            assert!((found - by_hand).abs() < 1e-12, "{adjusted:?}");
        }
        assert_eq!(false_discovery(&[]), Vec::<f64>::new());
    }

    #[test]
    fn single_row_needs_no_correction() {
        assert_eq!((each(0.95, 1), each(0.95, 0)), (0.95, 0.95));
        assert!((each(0.95, 10) - 0.995).abs() < 1e-12);
    }
}

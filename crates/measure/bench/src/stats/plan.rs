//! The number of repetitions, computed from a pilot: [`RepetitionPlan::new`].
//!
//! The formula is that of Kalibera and Jones (ISMM 2013, section 6). T₁² is the variance of an
//! iteration inside its invocation, T₂² the variance between invocations, and c₁ and c₂ are the
//! costs of one more iteration and one more invocation. Then r₁ = ⌈√(c₂/c₁ · T₁²/T₂²)⌉ iterations
//! per invocation narrow the interval most for the time spent; the number of invocations follows
//! from the requested width.
//!
//! The formula assumes that iterations are independent. If they are correlated, pass the means of
//! stretches that are longer than the correlation.

use super::mean::{moments, student_factor};

/// Maximum number of invocations in a plan, which bounds the search.
pub const MOST_INVOCATIONS: usize = 10_000;
/// Maximum number of iterations in a plan.
pub const MOST_ITERATIONS: usize = 100_000_000;

/// The two components of a pilot's variance, in the squared unit of its samples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Components {
    /// Mean of the pilot.
    pub mean: f64,
    /// T₁², the variance between the iterations of an invocation.
    pub within: f64,
    /// T₂², the variance between invocations, without the contribution of the iterations. Never
    /// below 0.
    pub between: f64,
}

/// Cost of one more repetition at each level, in the same unit of time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Costs {
    /// c₁, the cost of one iteration.
    pub iteration: f64,
    /// c₂, the cost of one invocation (start, warm-up, end), without its iterations.
    pub invocation: f64,
}

/// Repetitions at both levels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RepetitionPlan {
    /// Number of iterations in each invocation.
    pub iterations: usize,
    /// Number of invocations; `None` if the requested width needs more than [`MOST_INVOCATIONS`].
    pub invocations: Option<usize>,
}

impl Components {
    /// Estimates the components from a pilot of equally long invocations.
    ///
    /// Returns `None` if there are fewer than two invocations or fewer than two iterations, if
    /// lengths differ, or if a sample is not finite.
    pub fn of(pilot: &[Vec<f64>]) -> Option<Self> {
        let iterations = pilot.first()?.len();
        if iterations < 2 || pilot.len() < 2 || pilot.iter().any(|run| run.len() != iterations) {
            return None;
        }
        let figures = pilot.iter().map(|run| moments(run)).collect::<Option<Vec<_>>>()?;
        let means: Vec<f64> = figures.iter().map(|(mean, _)| *mean).collect();
        let squares: f64 = figures.iter().map(|(_, deviation)| deviation.powi(2)).sum();
        let within = squares / pilot.len() as f64;
        let (mean, deviation) = moments(&means)?;
        let between = (deviation.powi(2) - within / iterations as f64).max(0.0);
        Some(Self { mean, within, between })
    }

    /// Returns the half width of the mean's 95 % interval for this number of invocations with this
    /// number of iterations each. Returns `None` for fewer than two invocations.
    pub fn half_width(&self, iterations: f64, invocations: usize) -> Option<f64> {
        let variance = self.between + self.within / iterations;
        let factor = student_factor(invocations, super::interval::CONFIDENCE)?;
        Some(factor * (variance / invocations as f64).sqrt())
    }
}

impl RepetitionPlan {
    /// Returns the cheapest repetitions for which the mean's 95 % interval extends at most
    /// `half_width`, in the samples' unit, to either side. Returns `None` if a cost or the width is
    /// not positive and finite.
    pub fn new(components: Components, costs: Costs, half_width: f64) -> Option<Self> {
        let usable = |x: f64| x > 0.0 && x.is_finite();
        if !usable(costs.iteration) || !usable(costs.invocation) || !usable(half_width) {
            return None;
        }
        let price = costs.invocation / costs.iteration;
        // If invocations are equal (T₂² = 0), the ideal number is infinite, and the bound limits
        // it.
        let ideal = if components.within > 0.0 {
            (price * components.within / components.between).sqrt().ceil()
        } else {
            1.0
        };
        let iterations = ideal.clamp(1.0, MOST_ITERATIONS as f64) as usize;
        let invocations = (2..=MOST_INVOCATIONS).find(|&count| {
            components.half_width(iterations as f64, count).is_some_and(|half| half <= half_width)
        });
        Some(Self { iterations, invocations })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COSTS: Costs = Costs { iteration: 1.0, invocation: 100.0 };

    #[test]
    fn plan_agrees_with_calculation_by_hand() {
        let components = Components { mean: 50.0, within: 4.0, between: 1.0 };
        // √(100 · 4/1) = 20 iterations, so the variance of an invocation's mean is 1 + 4/20 = 1.2.
        // For 8 invocations t(0.975, 7) = 2.365 gives 0.916 > 0.9; for 9, 2.306 gives 0.842.
        let plan = RepetitionPlan::new(components, COSTS, 0.9).unwrap();
        assert_eq!(plan, RepetitionPlan { iterations: 20, invocations: Some(9) });
    }

    #[test]
    fn planned_iterations_minimise_variance_times_cost() {
        let components = Components { mean: 50.0, within: 9.0, between: 0.5 };
        let best = RepetitionPlan::new(components, COSTS, 1.0).unwrap().iterations as f64;
        // An invocation's variance times its cost is the inverse of the precision gained per unit
        // of time.
        let price = |r: f64| (0.5 + 9.0 / r) * (100.0 + r);
        assert!((1..2000).all(|r| price(f64::from(r)) >= price(best) * 0.999));
    }

    #[test]
    fn pilot_components_agree_with_calculation_by_hand() {
        // The means are 2 and 4, each with variance 2 inside. S² = 2, minus 2/2, leaves 1.
        let pilot = [vec![1.0, 3.0], vec![3.0, 5.0]];
        let found = Components::of(&pilot).unwrap();
        for (part, by_hand) in [(found.mean, 3.0), (found.within, 2.0), (found.between, 1.0)] {
            assert!((part - by_hand).abs() < 1e-12, "{found:?}");
        }
    }

    #[test]
    fn unusable_pilot_has_no_components_and_plan_is_bounded() {
        assert_eq!(Components::of(&[]), None);
        assert_eq!(Components::of(&[vec![1.0, 2.0]]), None);
        assert_eq!(Components::of(&[vec![1.0, 2.0], vec![1.0]]), None);
        assert_eq!(Components::of(&[vec![1.0, f64::NAN], vec![1.0, 2.0]]), None);
        let still = Components { mean: 1.0, within: 0.0, between: 0.0 };
        let plan = RepetitionPlan::new(still, COSTS, 0.1).unwrap();
        assert_eq!(plan, RepetitionPlan { iterations: 1, invocations: Some(2) });
        let noisy = Components { mean: 1.0, within: 1.0, between: 1e12 };
        assert_eq!(RepetitionPlan::new(noisy, COSTS, 0.1).unwrap().invocations, None);
        assert_eq!(RepetitionPlan::new(still, COSTS, 0.0), None);
    }
}

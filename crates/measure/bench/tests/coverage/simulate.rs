//! Random processes with a known true value, against which intervals are checked: [`SampleModel`],
//! [`RunSimulator`].
//!
//! Every model has the level [`LEVEL`], and its samples have the deviation [`SPREAD`]; both are
//! close to those of a latency of 100 ns. A run is a list of invocations, each a list of
//! consecutive samples. The test of coverage draws thousands of runs and writes the table in the
//! documentation; the unit tests draw hundreds.

#![allow(dead_code, reason = "each test program uses a part")]

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use statrs::function::factorial::ln_binomial;

/// The level around which every model varies.
pub(crate) const LEVEL: f64 = 100.0;
/// Standard deviation of a sample inside an invocation, without spikes and modes.
pub(crate) const SPREAD: f64 = 10.0;
/// Standard deviation of an invocation's random effect, if the model has one.
pub(crate) const EFFECT: f64 = 5.0;
/// Increase of a drifting machine's level during a run.
pub(crate) const DRIFT: f64 = 15.0;
/// Distance between the modes of a model that has two modes.
pub(crate) const MODES: f64 = 60.0;
/// Tick of the coarse clock.
pub(crate) const TICK: f64 = 8.0;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum SampleModel {
    Normal,
    /// First-order autoregression with this coefficient inside each invocation, started in its
    /// stationary state.
    Autoregressive(f64),
    /// Independent normal samples around a level that is drawn once per invocation.
    RandomEffect,
    /// Independent lognormal samples with a random effect; 0.1 % of the samples are 50 times as
    /// large.
    Spikes,
    /// 70 % of the samples around one mode and 30 % around another, in every invocation.
    ModesWithin,
    /// 70 % of the *invocations* around one mode and 30 % around another.
    ModesBetween,
    /// The level rises from the first invocation to the last.
    Drift,
    /// Every other sample is larger.
    PeriodTwo,
    /// A random effect, and a clock that counts only whole ticks, which causes many ties.
    Ticks,
}

impl SampleModel {
    pub(crate) const ALL: [Self; 11] = [
        Self::Normal,
        Self::Autoregressive(0.5),
        Self::Autoregressive(0.9),
        Self::Autoregressive(0.99),
        Self::RandomEffect,
        Self::Spikes,
        Self::ModesWithin,
        Self::ModesBetween,
        Self::Drift,
        Self::PeriodTwo,
        Self::Ticks,
    ];

    pub(crate) fn name(self) -> String {
        match self {
            Self::Normal => "independent normal".into(),
            Self::Autoregressive(phi) => format!("AR(1), φ = {phi}"),
            Self::RandomEffect => "random invocation effect".into(),
            Self::Spikes => "lognormal, 0.1 % × 50 spikes".into(),
            Self::ModesWithin => "two modes within".into(),
            Self::ModesBetween => "two modes between".into(),
            Self::Drift => "drift over the run".into(),
            Self::PeriodTwo => "period 2".into(),
            Self::Ticks => "ticks (ties)".into(),
        }
    }
}

/// A generator of runs. The same seed gives the same runs.
#[derive(Debug)]
pub(crate) struct RunSimulator {
    generator: ChaCha8Rng,
    spare: Option<f64>,
}

impl RunSimulator {
    pub(crate) fn new(seed: u64) -> Self {
        Self { generator: ChaCha8Rng::seed_from_u64(seed), spare: None }
    }

    /// Draws a standard normal value, by Marsaglia's polar method.
    pub(crate) fn normal(&mut self) -> f64 {
        if let Some(spare) = self.spare.take() {
            return spare;
        }
        // A pair is rejected with probability 0.21, so the loop ends almost surely.
        loop {
            let x = self.uniform() * 2.0 - 1.0;
            let y = self.uniform() * 2.0 - 1.0;
            let square = x * x + y * y;
            if square > 0.0 && square < 1.0 {
                let factor = (-2.0 * square.ln() / square).sqrt();
                self.spare = Some(y * factor);
                return x * factor;
            }
        }
    }

    /// Draws the samples of one invocation. `progress`, from 0 to 1, is its position in the run,
    /// which only [`SampleModel::Drift`] uses.
    pub(crate) fn invocation(
        &mut self,
        model: SampleModel,
        progress: f64,
        samples: usize,
    ) -> Vec<f64> {
        let level = self.level(model, progress);
        let mut previous = self.normal();
        (0..samples)
            .map(|index| match model {
                SampleModel::Autoregressive(phi) => {
                    previous = phi * previous + (1.0 - phi * phi).sqrt() * self.normal();
                    level + SPREAD * previous
                }
                SampleModel::Spikes => {
                    let body = level * (0.1 * self.normal()).exp();
                    if self.uniform() < 0.001 { 50.0 * body } else { body }
                }
                SampleModel::ModesWithin => {
                    let upper = self.uniform() < 0.3;
                    level + f64::from(u8::from(upper)) * MODES + SPREAD * self.normal()
                }
                SampleModel::PeriodTwo => {
                    level + (index % 2) as f64 * MODES + SPREAD * self.normal()
                }
                SampleModel::Ticks => ((level + SPREAD * self.normal()) / TICK).floor() * TICK,
                _ => level + SPREAD * self.normal(),
            })
            .collect()
    }

    pub(crate) fn run(
        &mut self,
        model: SampleModel,
        invocations: usize,
        samples: usize,
    ) -> Vec<Vec<f64>> {
        let last = (invocations.max(2) - 1) as f64;
        (0..invocations).map(|index| self.invocation(model, index as f64 / last, samples)).collect()
    }

    /// Draws the number of hits in the tries of one invocation. The invocation's own share is
    /// beta-distributed around `share`, with a standard deviation of `variation` times the rarer of
    /// the two outcomes.
    pub(crate) fn hits(&mut self, share: f64, variation: f64, tries: usize) -> usize {
        let rarer = share.min(1.0 - share);
        if rarer == 0.0 || variation == 0.0 {
            return self.binomial(share, tries);
        }
        let weight = share * (1.0 - share) / (variation * rarer).powi(2) - 1.0;
        let (hit, miss) = (self.gamma(share * weight), self.gamma((1.0 - share) * weight));
        self.binomial(hit / (hit + miss), tries)
    }

    /// Draws a gamma-distributed value, by Marsaglia and Tsang's method.
    fn gamma(&mut self, shape: f64) -> f64 {
        if shape < 1.0 {
            return self.gamma(shape + 1.0) * self.uniform().powf(1.0 / shape);
        }
        let d = shape - 1.0 / 3.0;
        // A value is rejected with a probability of at most 0.05, so the loop ends almost surely.
        loop {
            let x = self.normal();
            let v = (1.0 + x / (9.0 * d).sqrt()).powi(3);
            if v > 0.0 && self.uniform().ln() < x * x / 2.0 + d * (1.0 - v + v.ln()) {
                return d * v;
            }
        }
    }

    /// Draws a binomially distributed number, by inversion from the most probable number outwards.
    fn binomial(&mut self, share: f64, tries: usize) -> usize {
        if share <= 0.0 || share >= 1.0 || tries == 0 {
            return if share >= 1.0 { tries } else { 0 };
        }
        let n = tries as f64;
        let odds = share / (1.0 - share);
        let middle = (((n + 1.0) * share) as usize).min(tries);
        let ln = ln_binomial(tries as u64, middle as u64);
        let m = middle as f64;
        let most = (ln + m * share.ln() + (n - m) * (1.0 - share).ln()).exp();
        let mut left = self.uniform() - most;
        let (mut low, mut below) = (middle, most);
        let (mut high, mut above) = (middle, most);
        while left >= 0.0 && (low > 0 || high < tries) {
            if high < tries {
                above *= odds * (tries - high) as f64 / (high + 1) as f64;
                high += 1;
                left -= above;
                if left < 0.0 {
                    return high;
                }
            }
            if low > 0 {
                below *= low as f64 / (tries - low + 1) as f64 / odds;
                low -= 1;
                left -= below;
                if left < 0.0 {
                    return low;
                }
            }
        }
        middle
    }

    fn level(&mut self, model: SampleModel, progress: f64) -> f64 {
        match model {
            SampleModel::RandomEffect | SampleModel::Spikes | SampleModel::Ticks => {
                LEVEL + EFFECT * self.normal()
            }
            SampleModel::ModesBetween if self.uniform() < 0.3 => LEVEL + MODES,
            SampleModel::Drift => LEVEL + DRIFT * progress,
            _ => LEVEL,
        }
    }

    fn uniform(&mut self) -> f64 {
        self.generator.random::<f64>()
    }
}

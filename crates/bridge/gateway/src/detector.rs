//! The failure detector for one peer: [`Detector`].
//!
//! Silence is not death: a peer that does not answer is *suspected*, and only its answer proves
//! anything. Nothing here does input or output: the caller passes the time in.

use std::time::{Duration, Instant};

/// Interval between two pings.
pub const PING_INTERVAL: Duration = Duration::from_millis(250);
/// Silence after which a peer is suspected.
pub const SUSPECT_AFTER: Duration = Duration::from_secs(1);

/// Facts that an answer of the peer proves about it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct News {
    /// The peer was suspected, or was never seen, and answers now.
    pub healed: bool,
    /// The peer's gateway was restarted.
    pub new_instance: bool,
}

/// The failure detector for one peer.
#[derive(Debug, Clone)]
pub struct Detector {
    nonce: u64,
    pinged: Option<Instant>,
    last_answer: Instant,
    suspected: Option<Instant>,
    instance: Option<u128>,
    round_trip: Option<Duration>,
}

impl Detector {
    /// Returns a detector that began at `now`.
    pub fn new(now: Instant) -> Self {
        Self {
            nonce: 0,
            pinged: None,
            last_answer: now,
            suspected: None,
            instance: None,
            round_trip: None,
        }
    }

    /// Returns the number of the next ping, if one is due.
    pub fn ping(&mut self, now: Instant) -> Option<u64> {
        if self.pinged.is_some_and(|pinged| now < pinged + PING_INTERVAL) {
            return None;
        }
        // If this process did not run, the silence is its own.
        if self.pinged.is_some_and(|pinged| now >= pinged + 2 * PING_INTERVAL) {
            self.last_answer = now;
        }
        self.pinged = Some(now);
        self.nonce += 1;
        Some(self.nonce)
    }

    /// Returns the time of the next ping.
    pub fn next_ping(&self) -> Option<Instant> {
        self.pinged.map(|pinged| pinged + PING_INTERVAL)
    }

    /// Notes an answer to the ping with this number, from a gateway with this instance.
    pub fn on_pong(&mut self, nonce: u64, instance: u128, now: Instant) -> News {
        // An old answer proves nothing about the present.
        if nonce.saturating_add(3) < self.nonce || nonce > self.nonce {
            return News::default();
        }
        if nonce == self.nonce {
            self.round_trip = self.pinged.map(|pinged| now.saturating_duration_since(pinged));
        }
        let before = self.instance.replace(instance);
        let healed = self.suspected.take().is_some() || before.is_none();
        self.last_answer = now;
        News { healed, new_instance: before.is_some_and(|before| before != instance) }
    }

    /// Notes an answer to a frame of this gateway other than a ping. It proves that the peer lives,
    /// but it does not end a suspicion: the answer may be old.
    pub fn on_answer(&mut self, now: Instant) {
        if self.is_reachable() {
            self.last_answer = now;
        }
    }

    /// Returns `true` if the peer has just become suspected.
    pub fn suspects(&mut self, now: Instant) -> bool {
        let due = now.saturating_duration_since(self.last_answer) >= SUSPECT_AFTER
            && self.pinged.is_some_and(|pinged| now < pinged + 2 * PING_INTERVAL);
        let new = due && self.suspected.is_none();
        if new {
            self.suspected = Some(now);
        }
        new
    }

    /// Returns the time since which the peer is suspected.
    pub fn suspected_since(&self) -> Option<Instant> {
        self.suspected
    }

    /// Returns `true` if the peer has answered since this gateway started.
    pub fn was_seen(&self) -> bool {
        self.instance.is_some()
    }

    /// Returns `true` while the peer answers.
    pub fn is_reachable(&self) -> bool {
        self.instance.is_some() && self.suspected.is_none()
    }

    /// Returns the time between the last ping and its answer.
    pub fn round_trip(&self) -> Option<Duration> {
        self.round_trip
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silent_peer_is_suspected_until_it_answers() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut detector = Detector::new(start);
        let first = detector.ping(at(0)).expect("due at once");
        assert_eq!(detector.ping(at(249)), None);
        let seen = News { healed: true, ..News::default() };
        assert_eq!(detector.on_pong(first, 1, at(1)), seen);
        assert_eq!(detector.round_trip(), Some(Duration::from_millis(1)));
        for ms in [250, 500, 750, 1000] {
            assert!(detector.ping(at(ms)).is_some());
            assert!(!detector.suspects(at(ms)));
        }
        assert!(detector.suspects(at(1001)));
        assert!(!detector.suspects(at(1002)), "reported once");
        let last = detector.ping(at(1250)).expect("due");
        assert_eq!(detector.on_pong(last, 1, at(1251)), seen);
        assert!(detector.is_reachable());
    }

    #[test]
    fn new_instance_is_reported_once() {
        let now = Instant::now();
        let mut detector = Detector::new(now);
        let nonce = detector.ping(now).expect("due at once");
        detector.on_pong(nonce, 1, now);
        let restarted = News { new_instance: true, ..News::default() };
        assert_eq!(detector.on_pong(nonce, 3, now), restarted);
        assert_eq!(detector.on_pong(nonce, 3, now), News::default());
    }

    #[test]
    fn answers_delay_suspicion_but_do_not_end_it() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut detector = Detector::new(start);
        detector.on_answer(at(0));
        let first = detector.ping(at(0)).expect("due at once");
        detector.on_pong(first, 1, at(1));
        for ms in [250, 500, 750, 1000, 1250] {
            detector.ping(at(ms));
        }
        detector.on_answer(at(900));
        assert!(!detector.suspects(at(1300)));
        detector.ping(at(1500));
        detector.ping(at(1750));
        assert!(detector.suspects(at(1900)));
        detector.on_answer(at(1901));
        assert!(!detector.is_reachable());
    }

    #[test]
    fn old_and_invented_answers_are_ignored() {
        let start = Instant::now();
        let mut detector = Detector::new(start);
        for count in 0..5 {
            detector.ping(start + PING_INTERVAL * count);
        }
        assert_eq!(detector.on_pong(1, 1, start), News::default());
        assert_eq!(detector.on_pong(6, 1, start), News::default());
        assert_eq!(detector.on_pong(u64::MAX, 1, start), News::default());
        assert!(!detector.was_seen());
    }

    #[test]
    fn stopped_gateway_does_not_blame_its_peer() {
        let start = Instant::now();
        let mut detector = Detector::new(start);
        detector.ping(start);
        let later = start + Duration::from_secs(60);
        assert!(!detector.suspects(later), "no ping was sent meanwhile");
        assert!(detector.ping(later).is_some());
        assert!(!detector.suspects(later), "the peer had no time to answer");
    }
}

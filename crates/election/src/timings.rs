//! The durations of an election and what has to hold between them.

use std::time::Duration;

/// Factor by which the lease must outlast the renew deadline: two clocks whose rates are 10 % off in opposite directions
/// differ by 1.1 / 0.9 ≈ 1.222.
pub const CLOCK_RATE_MARGIN: f64 = 1.23;

/// Durations of an election. All are measured on this process's own clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timings {
    /// How long a challenger waits after the record last changed. Default 15 s.
    pub lease_duration: Duration,
    /// How long a leadership lasts after the last successful renewal was sent. Default 10 s.
    pub renew_deadline: Duration,
    /// Time between two attempts to take or to renew the lease, before jitter. Default 2 s.
    pub retry_period: Duration,
    /// How long a single write to the cluster may take. Default 3 s.
    pub write_timeout: Duration,
}

/// A named set of timings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preset {
    /// Quick to notice a dead leader, for a nearby and lightly loaded API server: 6 s, 4 s, 1 s, write time-out 1.5 s.
    Fast,
    /// Slow to give up a leadership, for a slow or far API server: 60 s, 40 s, 5 s, write time-out 10 s.
    Tolerant,
}

/// Timings as a configuration gives them: what is not set comes from the preset, then from the defaults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimingsConfig {
    /// Base of what is not set.
    pub preset: Option<Preset>,
    /// `leaseDuration`.
    pub lease_duration: Option<Duration>,
    /// `renewDeadline`.
    pub renew_deadline: Option<Duration>,
    /// `retryPeriod`.
    pub retry_period: Option<Duration>,
    /// `writeTimeout`.
    pub write_timeout: Option<Duration>,
}

/// Why timings are refused. Fields are named as in the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTimings {
    /// A duration is zero.
    #[error("{0} must be greater than zero")]
    Zero(
        /// The field.
        &'static str,
    ),
    /// A lease duration that the Lease record cannot hold.
    #[error("leaseDuration ({0:?}) must not be longer than {max} seconds", max = i32::MAX)]
    LeaseTooLong(
        /// The duration given.
        Duration,
    ),
    /// Clocks that differ in rate could let two processes lead.
    #[error(
        "renewDeadline ({renew_deadline:?}) × 1.23 must be less than leaseDuration ({lease_duration:?}), so that clocks 10 % apart in rate do no harm"
    )]
    NoClockMargin {
        /// `renewDeadline`.
        renew_deadline: Duration,
        /// `leaseDuration`.
        lease_duration: Duration,
    },
    /// A write begun at the very end could outlast the lease.
    #[error(
        "renewDeadline ({renew_deadline:?}) + writeTimeout ({write_timeout:?}) must be less than leaseDuration ({lease_duration:?})"
    )]
    NoWriteMargin {
        /// `renewDeadline`.
        renew_deadline: Duration,
        /// `writeTimeout`.
        write_timeout: Duration,
        /// `leaseDuration`.
        lease_duration: Duration,
    },
    /// A single failed renewal would cost the leadership.
    #[error("2 × retryPeriod ({retry_period:?}) must not be greater than renewDeadline ({renew_deadline:?})")]
    RetryTooSlow {
        /// `retryPeriod`.
        retry_period: Duration,
        /// `renewDeadline`.
        renew_deadline: Duration,
    },
}

// === impl Timings ===

impl Timings {
    /// Checks what has to hold between the durations.
    ///
    /// # Errors
    /// The first rule that is broken, with the fields it is about.
    pub fn validate(&self) -> Result<(), InvalidTimings> {
        let Self { lease_duration, renew_deadline, retry_period, write_timeout } = *self;
        for (name, value) in [
            ("leaseDuration", lease_duration),
            ("renewDeadline", renew_deadline),
            ("retryPeriod", retry_period),
            ("writeTimeout", write_timeout),
        ] {
            if value.is_zero() {
                return Err(InvalidTimings::Zero(name));
            }
        }
        if lease_duration.as_secs() >= i32::MAX as u64 {
            return Err(InvalidTimings::LeaseTooLong(lease_duration));
        }
        if renew_deadline.as_secs_f64() * CLOCK_RATE_MARGIN >= lease_duration.as_secs_f64() {
            return Err(InvalidTimings::NoClockMargin { renew_deadline, lease_duration });
        }
        if renew_deadline.saturating_add(write_timeout) >= lease_duration {
            return Err(InvalidTimings::NoWriteMargin { renew_deadline, write_timeout, lease_duration });
        }
        if retry_period.saturating_mul(2) > renew_deadline {
            return Err(InvalidTimings::RetryTooSlow { retry_period, renew_deadline });
        }
        Ok(())
    }

    /// How long a single call to the API server is waited for: half the renew deadline, so that one that hangs leaves time
    /// for another.
    #[must_use]
    pub fn attempt_timeout(&self) -> Duration {
        self.renew_deadline / 2
    }
}

impl Default for Timings {
    fn default() -> Self {
        Self {
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
            write_timeout: Duration::from_secs(3),
        }
    }
}

impl From<Preset> for Timings {
    fn from(preset: Preset) -> Self {
        match preset {
            Preset::Fast => Self {
                lease_duration: Duration::from_secs(6),
                renew_deadline: Duration::from_secs(4),
                retry_period: Duration::from_secs(1),
                write_timeout: Duration::from_millis(1500),
            },
            Preset::Tolerant => Self {
                lease_duration: Duration::from_secs(60),
                renew_deadline: Duration::from_secs(40),
                retry_period: Duration::from_secs(5),
                write_timeout: Duration::from_secs(10),
            },
        }
    }
}

impl TimingsConfig {
    /// Fills in the preset and the defaults, and validates the result.
    ///
    /// # Errors
    /// As [`Timings::validate`].
    pub fn resolve(&self) -> Result<Timings, InvalidTimings> {
        let base = self.preset.map_or_else(Timings::default, Timings::from);
        let timings = Timings {
            lease_duration: self.lease_duration.unwrap_or(base.lease_duration),
            renew_deadline: self.renew_deadline.unwrap_or(base.renew_deadline),
            retry_period: self.retry_period.unwrap_or(base.retry_period),
            write_timeout: self.write_timeout.unwrap_or(base.write_timeout),
        };
        timings.validate()?;
        Ok(timings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn rule_02_timings_are_validated_and_the_message_names_the_fields() {
        let ok = Timings::default();
        assert_eq!(
            (ok.lease_duration, ok.renew_deadline, ok.retry_period, ok.write_timeout),
            (s(15), s(10), s(2), s(3))
        );
        ok.validate().unwrap();
        assert_eq!(ok.attempt_timeout(), s(5));
        let bad: &[(Timings, &[&str])] = &[
            (Timings { lease_duration: s(0), ..ok }, &["leaseDuration"]),
            (Timings { renew_deadline: s(0), ..ok }, &["renewDeadline"]),
            (Timings { retry_period: s(0), ..ok }, &["retryPeriod"]),
            (Timings { write_timeout: s(0), ..ok }, &["writeTimeout"]),
            (Timings { lease_duration: s(12), write_timeout: s(1), ..ok }, &["renewDeadline", "1.23", "leaseDuration"]),
            (Timings { write_timeout: s(5), ..ok }, &["renewDeadline", "writeTimeout", "leaseDuration"]),
            (Timings { retry_period: Duration::from_millis(5001), ..ok }, &["retryPeriod", "renewDeadline"]),
            (Timings { lease_duration: s(3_000_000_000), ..ok }, &["leaseDuration"]),
        ];
        for (timings, words) in bad {
            let message = timings.validate().unwrap_err().to_string();
            for word in *words {
                assert!(message.contains(word), "{message} does not name {word}");
            }
        }
        Timings { lease_duration: Duration::from_millis(12_301), write_timeout: s(2), ..ok }.validate().unwrap();
        Timings { retry_period: s(5), ..ok }.validate().unwrap();
    }

    #[test]
    fn explicit_values_win_over_the_preset() {
        for preset in [Preset::Fast, Preset::Tolerant] {
            Timings::from(preset).validate().unwrap();
        }
        let config =
            TimingsConfig { preset: Some(Preset::Fast), lease_duration: Some(s(20)), ..TimingsConfig::default() };
        let timings = config.resolve().unwrap();
        assert_eq!(timings, Timings { lease_duration: s(20), ..Timings::from(Preset::Fast) });
        assert_eq!(TimingsConfig::default().resolve().unwrap(), Timings::default());
        assert!(TimingsConfig { renew_deadline: Some(s(15)), ..TimingsConfig::default() }.resolve().is_err());
    }
}

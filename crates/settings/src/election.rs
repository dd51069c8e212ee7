//! Leader election: the timings that hold, and whether they can work.

use std::time::Duration;

use api::config::{
    EnvoyGateway, LeaderElection, LeaderElectionPreset, OnLostLease, ProviderType, ResourceProviderType,
};

use crate::decode::Provenance;
use crate::error::Problem;

/// The election as it will run, every value decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Election {
    /// False: this process always writes.
    pub enabled: bool,
    /// Time that a candidate waits after it last saw the lease renewed.
    pub lease_duration: Duration,
    /// Time after its last successful renewal at which a leader stops writing.
    pub renew_deadline: Duration,
    /// Time between two attempts.
    pub retry_period: Duration,
    /// Time that a single write may take.
    pub write_timeout: Duration,
    /// What a leader does when it loses the lease.
    pub on_lost_lease: OnLostLease,
    /// Time without an answer of the API server after which the process ends; none: unlimited.
    pub max_recovery_duration: Option<Duration>,
}

/// Lease duration, renew deadline, retry period and write time-out, in milliseconds. They are those of `election`,
/// which this crate does not know; whoever composes the two hands its values over whole.
const STANDARD: [u64; 4] = [15_000, 10_000, 2_000, 3_000];
/// Timings of `preset: Fast`.
const FAST: [u64; 4] = [6_000, 4_000, 1_000, 1_500];
/// Timings of `preset: Tolerant`.
const TOLERANT: [u64; 4] = [60_000, 40_000, 5_000, 10_000];

/// Decides every value: what is written wins over the preset, the preset over the standard.
pub fn election(section: &LeaderElection) -> Election {
    let [lease, renew, retry, write] = match section.preset {
        None => STANDARD,
        Some(LeaderElectionPreset::Fast) => FAST,
        Some(LeaderElectionPreset::Tolerant) => TOLERANT,
    };
    let or = |written: &Option<api::config::Duration>, millis| {
        written.as_ref().map_or(Duration::from_millis(millis), api::config::Duration::get)
    };
    Election {
        enabled: !section.disable.unwrap_or(false),
        lease_duration: or(&section.lease_duration, lease),
        renew_deadline: or(&section.renew_deadline, renew),
        retry_period: or(&section.retry_period, retry),
        write_timeout: or(&section.write_timeout, write),
        on_lost_lease: section.on_lost_lease.unwrap_or_default(),
        max_recovery_duration: section.max_recovery_duration.as_ref().map(api::config::Duration::get),
    }
}

/// The section that counts for `config`, with its path; none where resources come from files, as then nobody elects.
pub fn leader_election(config: &EnvoyGateway) -> Option<(&'static str, &LeaderElection)> {
    match config.provider.type_ {
        ProviderType::Kubernetes => {
            Some(("provider.kubernetes.leaderElection", &config.provider.kubernetes.leader_election))
        }
        ProviderType::Custom => {
            let resource = &config.provider.custom.as_ref()?.resource;
            if resource.type_ != ResourceProviderType::Kubernetes {
                return None;
            }
            let kubernetes = resource.kubernetes.as_deref()?;
            Some(("provider.custom.resource.kubernetes.leaderElection", &kubernetes.leader_election))
        }
    }
}

/// Whether the timings can work: a leader must know that it is none before anyone else can be one, though their clocks
/// run at rates up to 10 % apart, and a write that it sent just before must have ended. Nothing is checked when the
/// election is disabled.
pub(crate) fn validate_leader_election(config: &EnvoyGateway, provenance: &Provenance) -> Vec<Problem> {
    let Some((section_path, section)) = leader_election(config) else { return Vec::new() };
    let chosen = election(section);
    if !chosen.enabled {
        return Vec::new();
    }
    let mut problems = Vec::new();
    let mut refuse = |fields: &[&str], reason: String, remedy: &str| {
        let fields: Vec<_> = fields.iter().map(|field| format!("{section_path}.{field}")).collect();
        problems.push(provenance.joint_problem(&fields, reason, remedy));
    };
    let Election { lease_duration, renew_deadline, retry_period, write_timeout, .. } = chosen;
    for (field, value) in [
        ("leaseDuration", lease_duration),
        ("renewDeadline", renew_deadline),
        ("retryPeriod", retry_period),
        ("writeTimeout", write_timeout),
    ] {
        if value.is_zero() {
            refuse(&[field], "the duration is zero".to_owned(), "write one above zero");
        }
    }
    if chosen.max_recovery_duration.is_some_and(|longest| longest.is_zero()) {
        let remedy = "write one above zero, or remove the field for no limit";
        refuse(&["maxRecoveryDuration"], "the duration is zero".to_owned(), remedy);
    }
    // The lease's record holds whole seconds in 32 bits.
    if lease_duration.as_secs() >= i32::MAX as u64 {
        refuse(&["leaseDuration"], format!("it is longer than {} seconds", i32::MAX), "write a shorter one");
    }
    if lease_duration < Duration::from_secs(1) && !lease_duration.is_zero() {
        refuse(&["leaseDuration"], "it is below one second".to_owned(), "write at least 1s");
    }
    if renew_deadline.as_nanos() * 123 >= lease_duration.as_nanos() * 100 {
        refuse(
            &["renewDeadline", "leaseDuration"],
            format!(
                "renewDeadline {renew_deadline:?} × 1.23 is not below leaseDuration {lease_duration:?}, so two replicas whose clocks run at different rates could both lead"
            ),
            "raise leaseDuration or lower renewDeadline",
        );
    }
    if renew_deadline + write_timeout >= lease_duration {
        refuse(
            &["writeTimeout", "renewDeadline", "leaseDuration"],
            format!(
                "renewDeadline {renew_deadline:?} + writeTimeout {write_timeout:?} is not below leaseDuration {lease_duration:?}, so a write could still be under way when another replica leads"
            ),
            "raise leaseDuration, or lower renewDeadline or writeTimeout",
        );
    }
    if retry_period * 2 > renew_deadline {
        refuse(
            &["retryPeriod", "renewDeadline"],
            format!(
                "retryPeriod {retry_period:?} × 2 is above renewDeadline {renew_deadline:?}, so one failed attempt would cost the leadership"
            ),
            "raise renewDeadline or lower retryPeriod",
        );
    }
    problems
}

//! Planted bugs for the simulation: it must catch each of them, or it proves nothing.
//!
//! They exist only with the feature `mutants`, which nothing that ships enables, and even then only in an elector that
//! was given one by `Elector::with_mutant`.

/// A bug that can be planted. Each breaks one rule of the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(not(feature = "mutants"), expect(unreachable_pub, reason = "exported with the feature only"))]
pub enum Mutant {
    /// A leadership does not look at its own end; it lasts until the elector hears otherwise.
    OwnClockIgnored,
    /// A challenger compares the record's renewTime with its own wall clock.
    WallClockTrusted,
    /// A conflict or time-out on renewal is taken for a lost lease, without a second look.
    MissingReRead,
    /// The lease is released while writes are still unanswered.
    EarlyRelease,
    /// The next term comes from the record alone: a deleted Lease brings old numbers back.
    TermReuse,
    /// An adopted renewal extends the end from now, not from when the stored attempt was sent.
    AdoptedEndExtended,
    /// A leadership's end is counted from the answer of a renewal, not from before it was sent.
    EndFromAnswer,
    /// A challenger waits its own lease duration only, however long the record's is.
    OwnDurationOnly,
    /// A challenger counts from when the holder changed, not the record: renewals are not noticed.
    RenewalsUnseen,
    /// A missing Lease is created and led at once.
    AbsenceTrusted,
    /// A call that hangs is waited for without limit.
    NoAttemptTimeout,
    /// The elector ends at the first API error.
    LeavesOnError,
}

/// The bug planted in one elector: none, unless the simulation put one there.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Planted {
    #[cfg(feature = "mutants")]
    pub(crate) bug: Option<Mutant>,
}

impl Planted {
    /// Whether this bug is planted here; always `false` without the feature.
    #[cfg(feature = "mutants")]
    pub(crate) fn is(self, bug: Mutant) -> bool {
        self.bug == Some(bug)
    }

    /// Whether this bug is planted here; always `false` without the feature.
    #[cfg(not(feature = "mutants"))]
    #[expect(clippy::unused_self, reason = "same signature as with the feature")]
    pub(crate) const fn is(self, _: Mutant) -> bool {
        false
    }
}

#[cfg(feature = "mutants")]
impl Mutant {
    /// Every bug that can be planted.
    pub const ALL: [Self; 12] = [
        Self::OwnClockIgnored,
        Self::WallClockTrusted,
        Self::MissingReRead,
        Self::EarlyRelease,
        Self::TermReuse,
        Self::AdoptedEndExtended,
        Self::EndFromAnswer,
        Self::OwnDurationOnly,
        Self::RenewalsUnseen,
        Self::AbsenceTrusted,
        Self::NoAttemptTimeout,
        Self::LeavesOnError,
    ];
}

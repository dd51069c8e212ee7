//! Copies of requests that are sent elsewhere.

use api::gateway::HTTPRequestMirrorFilter;
use ir::{Fraction, Mirror};

use super::rule::Context;
use crate::{
    backend,
    cluster::{self, Built, Changes, Share},
    condition::Problem,
};

/// Builds the cluster of a mirror; none when its backend has no endpoints, which is told but harms no request.
pub(super) fn mirror(
    context: &Context<'_, '_>,
    filter: &HTTPRequestMirrorFilter,
    index: usize,
    built: &mut Built,
) -> Result<Option<Mirror>, Problem> {
    let target = backend::resolve(context.view, context.unit, context.route, &filter.backend_ref, None)?;
    context.saw(&filter.backend_ref);
    if target.endpoints.is_empty() && !target.dynamic {
        let message = format!(
            "{} {}/{} has no ready endpoints; nothing is mirrored to it until it has",
            target.origin.kind, target.origin.namespace, target.origin.name
        );
        return Err(Problem::unavailable(message));
    }
    let name = format!("{}-mirror-{index}", context.rule_path);
    let share = Share { index: -1, weight: 1, target: Some(target), changes: Changes::default() };
    cluster::add(&context.unit.fleet, built, name.as_str().into(), &name, None, &[share], cluster::Wishes::default());
    Ok(Some(Mirror { cluster: name.into(), fraction: Some(fraction(filter)) }))
}

fn fraction(filter: &HTTPRequestMirrorFilter) -> Fraction {
    const MILLION: u64 = 1_000_000;
    let of_million = |part: i32, whole: i32| {
        let (part, whole) = (u64::try_from(part).unwrap_or(0), u64::try_from(whole).unwrap_or(1).max(1));
        let numerator = u32::try_from((part * MILLION / whole).min(MILLION)).unwrap_or(0);
        Fraction { numerator, denominator: 1_000_000 }
    };
    match (filter.percent, &filter.fraction) {
        (Some(p), _) => of_million(p, 100),
        (None, Some(f)) => of_million(f.numerator, f.denominator.unwrap_or(100)),
        (None, None) => Fraction { numerator: 100, denominator: 100 },
    }
}

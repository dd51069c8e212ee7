//! HorizontalPodAutoscaler and PodDisruptionBudget, where they are asked for.

use serde_json::json;

use super::{Context, RenderError, patched, set};
use crate::kubernetes::{
    names,
    object::{Object, ObjectKind},
};

// === impl Context ===

impl Context<'_> {
    pub(super) fn autoscaler(&self) -> Result<Option<Object>, RenderError> {
        let Some(own) = &self.provider.envoy_hpa else { return Ok(None) };
        let target = self.provider.envoy_deployment.as_ref().and_then(|d| d.name.as_deref()).unwrap_or(&self.name);
        let mut spec = json!({
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": target},
            "minReplicas": own.min_replicas.unwrap_or(1),
            "maxReplicas": own.max_replicas,
            "metrics": [{"type": "Resource", "resource": {
                "name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80},
            }}],
        });
        set(&mut spec, "metrics", &own.metrics)?;
        set(&mut spec, "behavior", &own.behavior)?;
        let name = own.name.as_deref().unwrap_or(&self.name);
        let object = self.object(ObjectKind::HorizontalPodAutoscaler, name, json!({"spec": spec}));
        patched(object, own.patch.as_ref()).map(Some)
    }

    pub(super) fn disruption_budget(&self) -> Result<Option<Object>, RenderError> {
        let Some(own) = &self.provider.envoy_pdb else { return Ok(None) };
        let mut spec = json!({"selector": {"matchLabels": names::selector(self.proxy)}});
        set(&mut spec, "minAvailable", &own.min_available)?;
        set(&mut spec, "maxUnavailable", &own.max_unavailable)?;
        let name = own.name.as_deref().unwrap_or(&self.name);
        let object = self.object(ObjectKind::PodDisruptionBudget, name, json!({"spec": spec}));
        patched(object, own.patch.as_ref()).map(Some)
    }
}

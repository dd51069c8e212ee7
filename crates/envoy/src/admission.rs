//! Admission control: an HTTP filter of a cluster, so that it sees the success of each backend by itself.

use envoy_types::pb::{
    envoy::{
        config::core::v3::{RuntimeDouble, RuntimeFeatureFlag, RuntimePercent, RuntimeUInt32},
        extensions::filters::{
            http::{
                admission_control::v3::{
                    AdmissionControl,
                    admission_control::{
                        EvaluationCriteria, SuccessCriteria,
                        success_criteria::{GrpcCriteria, HttpCriteria},
                    },
                },
                upstream_codec::v3::UpstreamCodec,
            },
            network::http_connection_manager::v3::HttpFilter,
        },
        r#type::v3::{Int32Range, Percent},
    },
    google::protobuf::BoolValue,
};

use crate::{http::http_filter, pb::duration};

/// The filters of a cluster: admission control, then the codec that every such list ends with.
pub(crate) fn filters(a: &ir::AdmissionControl) -> Vec<HttpFilter> {
    vec![
        http_filter("envoy.filters.http.admission_control", &control(a)),
        http_filter("envoy.extensions.filters.http.upstream_codec.v3.UpstreamCodec", &UpstreamCodec {}),
    ]
}

fn control(a: &ir::AdmissionControl) -> AdmissionControl {
    let percent = |p: u32| RuntimePercent { default_value: Some(Percent { value: p.into() }), ..Default::default() };
    let status = |s: &u32| {
        let start = i32::try_from(*s).unwrap_or_default();
        Int32Range { start, end: start + 1 }
    };
    AdmissionControl {
        enabled: Some(RuntimeFeatureFlag { default_value: Some(BoolValue { value: true }), ..Default::default() }),
        sampling_window: a.window.map(duration),
        sr_threshold: a.min_success_percent.map(percent),
        aggression: a.aggression.map(|v| RuntimeDouble { default_value: v.into(), ..Default::default() }),
        rps_threshold: a.min_rate.map(|v| RuntimeUInt32 { default_value: v, ..Default::default() }),
        max_rejection_probability: a.max_rejection_percent.map(percent),
        evaluation_criteria: Some(EvaluationCriteria::SuccessCriteria(SuccessCriteria {
            http_criteria: (!a.http_statuses.is_empty())
                .then(|| HttpCriteria { http_success_status: a.http_statuses.iter().map(status).collect() }),
            grpc_criteria: (!a.grpc_statuses.is_empty())
                .then(|| GrpcCriteria { grpc_success_status: a.grpc_statuses.clone() }),
        })),
    }
}

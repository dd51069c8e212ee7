//! Access logs.

use envoy_types::pb::envoy::{
    config::{
        accesslog::v3::{
            AccessLog, AccessLogFilter, ResponseFlagFilter, access_log::ConfigType, access_log_filter::FilterSpecifier,
        },
        core::v3::{SubstitutionFormatString, substitution_format_string::Format},
    },
    extensions::access_loggers::file::v3::{FileAccessLog, file_access_log::AccessLogFormat},
};

use crate::pb::{any, structure, text};

pub(crate) fn all(logs: &[ir::AccessLog]) -> Vec<AccessLog> {
    logs.iter().map(access_log).collect()
}

fn access_log(log: &ir::AccessLog) -> AccessLog {
    match log {
        ir::AccessLog::FileJson { path, fields, only_no_route } => AccessLog {
            name: "envoy.access_loggers.file".to_owned(),
            filter: only_no_route.then(no_route),
            config_type: Some(ConfigType::TypedConfig(any(&FileAccessLog {
                path: path.to_string(),
                access_log_format: Some(AccessLogFormat::LogFormat(SubstitutionFormatString {
                    format: Some(Format::JsonFormat(structure(fields.iter().map(|(k, v)| (&**k, text(v)))))),
                    ..Default::default()
                })),
            }))),
        },
    }
}

fn no_route() -> AccessLogFilter {
    let filter = ResponseFlagFilter { flags: vec!["NR".to_owned()] };
    AccessLogFilter { filter_specifier: Some(FilterSpecifier::ResponseFlagFilter(filter)) }
}

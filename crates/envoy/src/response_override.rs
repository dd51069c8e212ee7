//! Responses that are replaced.

use envoy_types::pb::{
    cel::expr::{
        Constant, Expr, ParsedExpr,
        constant::ConstantKind,
        expr::{Call, ExprKind, Ident, Select},
    },
    envoy::{
        config::{
            core::v3::{
                HeaderValue, HeaderValueOption, SubstitutionFormatString, header_value_option::HeaderAppendAction,
                substitution_format_string::Format,
            },
            route::v3::RedirectAction,
        },
        extensions::{
            filters::http::custom_response::v3::CustomResponse,
            http::custom_response::{
                local_response_policy::v3::LocalResponsePolicy,
                redirect_policy::v3::{RedirectPolicy, redirect_policy::RedirectActionSpecifier},
            },
        },
        r#type::matcher::v3::{
            HttpResponseHeaderMatchInput, HttpResponseLocalReplyMatchInput, HttpResponseStatusCodeMatchInput,
        },
    },
    xds::{
        core::v3::TypedExtensionConfig,
        r#type::{
            matcher::v3::{
                Matcher, RegexMatcher, StringMatcher,
                matcher::{
                    MatcherList, MatcherType, OnMatch,
                    matcher_list::{
                        FieldMatcher, Predicate,
                        predicate::{MatchType, PredicateList, SinglePredicate, single_predicate},
                    },
                    on_match,
                },
                regex_matcher::{EngineType, GoogleRe2},
                string_matcher::MatchPattern,
            },
            v3::CelExpression,
        },
    },
};
use ir::{Answer, OverrideRule, StringMatch};
use prost::{Message, Name};

use crate::pb::{any, u32_value};

/// The filter of a policy.
pub(crate) fn filter(o: &ir::ResponseOverride) -> CustomResponse {
    let matchers = o.rules.iter().enumerate().map(|(i, rule)| FieldMatcher {
        predicate: Some(predicate(rule)),
        on_match: Some(OnMatch {
            on_match: Some(on_match::OnMatch::Action(action(rule, &format!("{}/responseoverride/rule/{i}", o.name)))),
            ..Default::default()
        }),
    });
    CustomResponse {
        custom_response_matcher: Some(Matcher {
            matcher_type: Some(MatcherType::MatcherList(MatcherList { matchers: matchers.collect() })),
            ..Default::default()
        }),
    }
}

fn config<M: Message + Name>(name: &str, message: &M) -> TypedExtensionConfig {
    TypedExtensionConfig { name: name.to_owned(), typed_config: Some(any(message)) }
}

fn predicate(rule: &OverrideRule) -> Predicate {
    let statuses = rule.statuses.iter().map(|(from, to)| status(*from, *to)).collect();
    let headers = rule.headers.iter().map(|(name, value)| header(name, value)).collect();
    let parts = [joined(statuses, MatchType::OrMatcher), joined(headers, MatchType::AndMatcher), rule.local.map(local)];
    joined(parts.into_iter().flatten().collect(), MatchType::AndMatcher).unwrap_or_default()
}

/// Several as one; one alone stays as it is.
fn joined(mut parts: Vec<Predicate>, by: fn(PredicateList) -> MatchType) -> Option<Predicate> {
    match parts.len() {
        0 | 1 => parts.pop(),
        _ => Some(Predicate { match_type: Some(by(PredicateList { predicate: parts })) }),
    }
}

fn single(input: TypedExtensionConfig, matcher: single_predicate::Matcher) -> Predicate {
    let single = SinglePredicate { input: Some(input), matcher: Some(matcher) };
    Predicate { match_type: Some(MatchType::SinglePredicate(single)) }
}

fn text(pattern: MatchPattern) -> single_predicate::Matcher {
    single_predicate::Matcher::ValueMatch(StringMatcher { match_pattern: Some(pattern), ..Default::default() })
}

fn status(from: u32, to: u32) -> Predicate {
    if from == to {
        let input = config("http-response-status-code-match-input", &HttpResponseStatusCodeMatchInput {});
        return single(input, text(MatchPattern::Exact(from.to_string())));
    }
    let input = config("http-attributes-cel-match-input", &HttpAttributesCelMatchInput {});
    let matcher = CelMatcher {
        expr_match: Some(CelExpression {
            cel_expr_parsed: Some(ParsedExpr { expr: Some(between(from, to)), ..Default::default() }),
            ..Default::default()
        }),
    };
    single(input, single_predicate::Matcher::CustomMatch(config("cel-matcher", &matcher)))
}

/// `response.code >= from && response.code <= to`.
fn between(from: u32, to: u32) -> Expr {
    let expr = |id, kind| Expr { id, expr_kind: Some(kind) };
    let bound = |first: i64, function: &str, value: u32| {
        let response = expr(first, ExprKind::IdentExpr(Ident { name: "response".to_owned() }));
        let code = Select { operand: Some(Box::new(response)), field: "code".to_owned(), ..Default::default() };
        let code = expr(first + 1, ExprKind::SelectExpr(Box::new(code)));
        let value = Constant { constant_kind: Some(ConstantKind::Int64Value(value.into())) };
        let value = expr(first + 3, ExprKind::ConstExpr(value));
        let call = Call { function: function.to_owned(), args: vec![code, value], ..Default::default() };
        expr(first + 2, ExprKind::CallExpr(Box::new(call)))
    };
    let args = vec![bound(1, "_>=_", from), bound(5, "_<=_", to)];
    let both = Call { function: "_&&_".to_owned(), args, ..Default::default() };
    expr(9, ExprKind::CallExpr(Box::new(both)))
}

fn header(name: &str, value: &StringMatch) -> Predicate {
    let input = HttpResponseHeaderMatchInput { header_name: name.to_owned() };
    let pattern = match value {
        StringMatch::Exact(s) => MatchPattern::Exact(s.to_string()),
        StringMatch::Prefix(s) => MatchPattern::Prefix(s.to_string()),
        StringMatch::Suffix(s) => MatchPattern::Suffix(s.to_string()),
        StringMatch::Contains(s) => MatchPattern::Contains(s.to_string()),
        StringMatch::Regex(s) => MatchPattern::SafeRegex(RegexMatcher {
            regex: s.to_string(),
            engine_type: Some(EngineType::GoogleRe2(GoogleRe2 {})),
        }),
    };
    single(config("http-response-header-match-input", &input), text(pattern))
}

fn local(local: bool) -> Predicate {
    let input = config("http-response-local-reply-match-input", &HttpResponseLocalReplyMatchInput {});
    single(input, text(MatchPattern::Exact(local.to_string())))
}

fn action(rule: &OverrideRule, name: &str) -> TypedExtensionConfig {
    match &rule.answer {
        Answer::Redirect(redirect) => {
            let to = RedirectActionSpecifier::RedirectAction(RedirectAction {
                // Its status is that of the policy.
                response_code: 0,
                ..crate::route::redirect(redirect)
            });
            config(
                name,
                &RedirectPolicy {
                    status_code: u32_value(redirect.status.into()),
                    redirect_action_specifier: Some(to),
                    ..Default::default()
                },
            )
        }
        Answer::Response { status, body, headers } => {
            let header = |h: &ir::HeaderAdd| HeaderValueOption {
                header: Some(HeaderValue { key: h.name.to_string(), value: h.value.to_string(), ..Default::default() }),
                append_action: match h.overwrite {
                    true => HeaderAppendAction::OverwriteIfExistsOrAdd,
                    false => HeaderAppendAction::AppendIfExistsOrAdd,
                } as i32,
                ..Default::default()
            };
            let format = |body: &Vec<u8>| SubstitutionFormatString {
                // A percent sign would begin a command of Envoy.
                #[allow(deprecated, reason = "the form that takes no file is this one")]
                format: Some(Format::TextFormat(String::from_utf8_lossy(body).replace('%', "%%"))),
                ..Default::default()
            };
            config(
                name,
                &LocalResponsePolicy {
                    status_code: status.and_then(u32_value),
                    body_format: body.as_ref().map(format),
                    response_headers_to_add: headers.iter().map(header).collect(),
                    ..Default::default()
                },
            )
        }
    }
}

/// `xds.type.matcher.v3.CelMatcher`, of which the generated types know nothing.
#[derive(Clone, PartialEq, Message)]
struct CelMatcher {
    #[prost(message, optional, tag = "1")]
    expr_match: Option<CelExpression>,
}

/// `xds.type.matcher.v3.HttpAttributesCelMatchInput`, likewise.
#[derive(Clone, Copy, PartialEq, Message)]
struct HttpAttributesCelMatchInput {}

impl Name for CelMatcher {
    const NAME: &'static str = "CelMatcher";
    const PACKAGE: &'static str = "xds.type.matcher.v3";

    fn type_url() -> String {
        "type.googleapis.com/xds.type.matcher.v3.CelMatcher".to_owned()
    }
}

impl Name for HttpAttributesCelMatchInput {
    const NAME: &'static str = "HttpAttributesCelMatchInput";
    const PACKAGE: &'static str = "xds.type.matcher.v3";

    fn type_url() -> String {
        "type.googleapis.com/xds.type.matcher.v3.HttpAttributesCelMatchInput".to_owned()
    }
}

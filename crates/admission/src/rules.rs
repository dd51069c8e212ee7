//! CEL rules (`x-kubernetes-validations`).

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock};

use base64::Engine as _;
use kube_cel::KubeCelExt as _;
use kube_cel::cel::extractors::This;
use kube_cel::cel::objects::{Key, Map};
use kube_cel::cel::{self, Context, Program};
use regex::Regex;
use serde_json::Value;

use crate::error::{ErrorType, FieldError};
use crate::path::Path;
use crate::schema::{Node, Type};
use crate::validate::brief;

/// One rule, compiled when it is first needed.
#[derive(Debug)]
pub(crate) struct Rule {
    text: String,
    message: Option<String>,
    message_expression: Option<String>,
    reason: Option<String>,
    field_path: Option<String>,
    compiled: OnceLock<Compiled>,
}

#[derive(Debug)]
struct Compiled {
    program: Result<Program, String>,
    message: Option<Program>,
    /// Whether the rule compares with the object's previous state, which a new object does not have.
    transition: bool,
}

impl Rule {
    /// Reads the rules of a schema node.
    pub(crate) fn read(list: Option<&Value>) -> Vec<Self> {
        let text = |rule: &Value, key: &str| rule.get(key).and_then(Value::as_str).map(str::to_owned);
        list.and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(|rule| {
                Some(Self {
                    text: text(rule, "rule")?,
                    message: text(rule, "message"),
                    message_expression: text(rule, "messageExpression"),
                    reason: text(rule, "reason"),
                    field_path: text(rule, "fieldPath"),
                    compiled: OnceLock::new(),
                })
            })
            .collect()
    }

    fn compiled(&self) -> &Compiled {
        self.compiled.get_or_init(|| {
            let program = Program::compile(&self.text).map_err(|error| error.to_string());
            Compiled {
                transition: program.as_ref().is_ok_and(|program| program.references().has_variable("oldSelf")),
                message: self.message_expression.as_ref().and_then(|text| Program::compile(text).ok()),
                program,
            }
        })
    }

    /// Why the rule or its message cannot be compiled, if so.
    #[cfg(test)]
    pub(crate) fn compile_error(&self) -> Option<String> {
        let compiled = self.compiled();
        let no_message = self.message_expression.is_some() && compiled.message.is_none();
        compiled.program.as_ref().err().cloned().or_else(|| no_message.then(|| "messageExpression".to_owned()))
    }

    /// The message for people, without the line breaks that a definition may have in it.
    fn message(&self, compiled: &Compiled, context: &Context<'_>) -> String {
        if let Some(Ok(cel::Value::String(text))) = compiled.message.as_ref().map(|program| program.execute(context))
            && !text.trim().is_empty()
        {
            return text.to_string();
        }
        match &self.message {
            Some(message) => message.trim().to_owned(),
            None => format!("failed rule: {}", self.text),
        }
    }
}

/// Evaluates rules.
pub(crate) struct Evaluator {
    context: Context<'static>,
}

impl fmt::Debug for Evaluator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Evaluator").finish_non_exhaustive()
    }
}

impl Evaluator {
    /// With all functions that Kubernetes adds to CEL.
    pub(crate) fn new() -> Self {
        let mut context = Context::default().with_all();
        // The function of the library compiles its expression at every call.
        let compiled: Mutex<BTreeMap<String, Regex>> = Mutex::default();
        context.add_function("matches", move |This(text): This<Arc<String>>, expression: Arc<String>| {
            let mut compiled = compiled.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            if let Some(regex) = compiled.get(expression.as_str()) {
                return Ok(regex.is_match(&text));
            }
            let regex = Regex::new(&expression)
                .map_err(|error| cel::ExecutionError::function_error("matches", error.to_string()))?;
            let matched = regex.is_match(&text);
            // Expressions come from schemas, of which there are few; from values only where a rule passes one on.
            if compiled.len() < 1024 {
                compiled.insert(expression.to_string(), regex);
            }
            Ok(matched)
        });
        Self { context }
    }

    /// Evaluates the rules of `node` and of all that is below on `value`.
    pub(crate) fn check(&self, node: &Node, value: &Value, path: &mut Path, errors: &mut Vec<FieldError>) {
        if !node.rules_below || value.is_null() {
            return;
        }
        if !node.rules.is_empty() {
            self.check_node(node, value, path, errors);
        }
        match value {
            Value::Object(fields) => {
                for (name, field) in fields {
                    if let Some(node) = node.properties.get(name).or(node.additional.as_deref()) {
                        path.field(name, |path| self.check(node, field, path, errors));
                    }
                }
            }
            Value::Array(items) => {
                if let Some(node) = node.items.as_deref().filter(|node| node.rules_below) {
                    for (i, item) in items.iter().enumerate() {
                        path.index(i, |path| self.check(node, item, path, errors));
                    }
                }
            }
            _ => {}
        }
    }

    fn check_node(&self, node: &Node, value: &Value, path: &Path, errors: &mut Vec<FieldError>) {
        let mut context = self.context.new_inner_scope();
        context.add_variable_from_value("self", to_cel(node, value));
        for rule in &node.rules {
            let compiled = rule.compiled();
            if compiled.transition {
                continue;
            }
            let at = match &rule.field_path {
                Some(field) => format!("{}{field}", path.as_str()),
                None => path.as_str().to_owned(),
            };
            let program = match &compiled.program {
                Ok(program) => program,
                Err(error) => {
                    let detail = format!("the schema's rule {:?} is not valid: {error}", rule.text);
                    errors.push(FieldError::new(at, ErrorType::Internal, None, detail));
                    continue;
                }
            };
            match program.execute(&context) {
                Ok(cel::Value::Bool(true)) => {}
                Ok(cel::Value::Bool(false)) => {
                    let kind = match rule.reason.as_deref() {
                        Some("FieldValueRequired") => ErrorType::Required,
                        Some("FieldValueForbidden") => ErrorType::Forbidden,
                        Some("FieldValueDuplicate") => ErrorType::Duplicate,
                        _ => ErrorType::Invalid,
                    };
                    let shown = matches!(kind, ErrorType::Invalid | ErrorType::Duplicate).then(|| brief(value));
                    errors.push(FieldError::new(at, kind, shown, rule.message(compiled, &context)));
                }
                Ok(_) => {
                    let detail = format!("the schema's rule {:?} does not give a boolean", rule.text);
                    errors.push(FieldError::new(at, ErrorType::Internal, None, detail));
                }
                Err(error) => {
                    let error = match error {
                        cel::ExecutionError::NoSuchKey(key) => format!("no such key: {key}"),
                        // What is left of an absent field that a function was to work on.
                        cel::ExecutionError::MissingArgumentOrTarget => "no such key".to_owned(),
                        error => error.to_string(),
                    };
                    let detail = format!("{error} evaluating rule: {}", rule.message(compiled, &context));
                    errors.push(FieldError::new(at, ErrorType::Invalid, Some(brief(value)), detail));
                }
            }
        }
    }
}

/// The value as CEL sees it: keys of declared fields are escaped where they are no identifiers, bytes are decoded.
fn to_cel(node: &Node, value: &Value) -> cel::Value {
    match value {
        Value::Null => cel::Value::Null,
        Value::Bool(flag) => cel::Value::Bool(*flag),
        Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(integer), _) if node.type_ != Some(Type::Number) => cel::Value::Int(integer),
            (None, Some(integer)) if node.type_ != Some(Type::Number) => cel::Value::UInt(integer),
            _ => cel::Value::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
        Value::String(text) => {
            if node.format.as_deref() == Some("byte")
                && let Ok(bytes) = base64::engine::general_purpose::STANDARD.decode(text)
            {
                return cel::Value::Bytes(Arc::new(bytes));
            }
            cel::Value::String(Arc::new(text.clone()))
        }
        Value::Array(items) => {
            let any = Node::default();
            let node = node.items.as_deref().unwrap_or(&any);
            cel::Value::List(Arc::new(items.iter().map(|item| to_cel(node, item)).collect()))
        }
        Value::Object(fields) => {
            let any = Node::default();
            let map = node.additional.is_some() || node.additional_any;
            let mut converted = HashMap::with_capacity(fields.len());
            for (name, field) in fields {
                let schema = node.properties.get(name).or(node.additional.as_deref()).unwrap_or(&any);
                let key = if map { name.clone() } else { escaped(name) };
                converted.insert(Key::String(Arc::new(key)), to_cel(schema, field));
            }
            cel::Value::Map(Map { map: Arc::new(converted) })
        }
    }
}

/// Field names that CEL reserves.
const RESERVED: [&str; 21] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// The name of a field as rules write it.
fn escaped(name: &str) -> String {
    if RESERVED.contains(&name) {
        return format!("__{name}__");
    }
    if !name.contains(['_', '.', '-', '/']) {
        return name.to_owned();
    }
    name.replace("__", "__underscores__").replace('.', "__dot__").replace('-', "__dash__").replace('/', "__slash__")
}

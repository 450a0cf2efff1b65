//! A plan's text as a value, changed and read again: for sweeps and clusters.
//!
//! Rule: what is read back is read as JSON with "ns", so errors name the field and times keep their units.

use serde_json::{Map, Value};

use super::{InputError, Measured, Report, json, run};

pub(super) type Object = Map<String, Value>;

/// A TOML file, or a JSON request if it begins with a brace.
pub(super) fn of(text: &str) -> Result<Object, InputError> {
    let wrong = |error: &dyn std::fmt::Display| InputError::new("the file", error);
    if text.trim_start().starts_with('{') {
        return serde_json::from_str(text).map_err(|error| wrong(&error));
    }
    Ok(steadyvm_config::untyped(text)?)
}

/// The list of a request, by either of its names.
pub(super) fn list<'a>(object: &'a mut Object, names: [&str; 2]) -> Option<&'a mut Vec<Value>> {
    let name = names.into_iter().find(|name| object.contains_key(*name))?;
    object.get_mut(name)?.as_array_mut()
}

/// The plan of a request. Whole numbers are nanoseconds, as in a file.
pub(super) fn plan(object: Object) -> Result<Report, InputError> {
    plan_measured(object, &Measured::default())
}

/// The same; costs that it leaves out are those that were measured on its host.
pub(super) fn plan_measured(mut object: Object, measured: &Measured) -> Result<Report, InputError> {
    object.insert("unit".to_owned(), "ns".into());
    run(&json::parse_measured(
        &Value::Object(object).to_string(),
        measured,
    )?)
}

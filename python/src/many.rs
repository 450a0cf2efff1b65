//! Many plans at once: a field over a range, random task sets, several hosts.
//!
//! A text is a steadyvm.toml, or a JSON request where it begins with a brace.

use pyo3::prelude::*;
use steadyvm_analysis::plan::{
    InputError, Measured, cluster, random,
    sweep::{self, Axis, Point},
};

use crate::value_error;

fn json(value: &impl serde::Serialize) -> PyResult<String> {
    serde_json::to_string(value).map_err(value_error)
}

fn points(py: Python<'_>, text: &str, axis: &str) -> PyResult<(Axis, Vec<Point>)> {
    py.allow_threads(|| {
        let axis = Axis::parse(axis)?;
        let points = sweep::run(text, &axis, &Measured::default())?;
        Ok::<_, InputError>((axis, points))
    })
    .map_err(value_error)
}

/// The plan with each value of a field, as JSON text.
#[pyfunction]
pub fn sweep_json(py: Python<'_>, text: &str, axis: &str) -> PyResult<String> {
    json(&points(py, text, axis)?.1)
}

/// The same as comma-separated values.
#[pyfunction]
pub fn sweep_csv(py: Python<'_>, text: &str, axis: &str) -> PyResult<String> {
    let (axis, points) = points(py, text, axis)?;
    Ok(sweep::csv(&axis, &points))
}

/// The same as an SVG picture.
#[pyfunction]
pub fn sweep_svg(py: Python<'_>, text: &str, axis: &str) -> PyResult<String> {
    let (axis, points) = points(py, text, axis)?;
    Ok(sweep::svg(&axis, &points))
}

/// How many of the random task sets that a file describes each combination holds, as JSON text.
#[pyfunction]
pub fn curves_json(py: Python<'_>, text: &str) -> PyResult<String> {
    let curves = py.allow_threads(|| {
        let random = random::Random::of(text)?;
        random::run(text, &random)
    });
    json(&curves.map_err(value_error)?)
}

/// Which host of a cluster takes which VM, as JSON text.
#[pyfunction]
pub fn cluster_json(py: Python<'_>, text: &str) -> PyResult<String> {
    json(
        &py.allow_threads(|| cluster::run(text))
            .map_err(value_error)?,
    )
}

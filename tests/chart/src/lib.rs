//! Renders the chart with helm.

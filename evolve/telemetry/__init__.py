"""Traces and metrics of runs, in OpenTelemetry's names. The only package that knows opentelemetry, and lazily."""

"""Predictive distributions of targets: numbers, counts and classes."""

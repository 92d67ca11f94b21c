"""From a config and data to a fitted model, without questions: plan, build, train."""

"""What shall be measured? YAML in, frozen `Scenario` out; an error names file, line and key."""

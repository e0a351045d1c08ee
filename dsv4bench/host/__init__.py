"""What machine this is: hardware, driver, limits, the tool itself, and children that die with us."""

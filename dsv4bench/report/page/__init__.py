"""The report of a campaign or an experiment: sections of plain blocks, one file a question, and the HTML."""

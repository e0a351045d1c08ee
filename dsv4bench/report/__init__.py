"""How is it shown? Records in; terminal, JSON and files out. Imports only what lies at the bottom of the house."""

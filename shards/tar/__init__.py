"""The tar format: headers, walking a tar whole or damaged, writing one."""

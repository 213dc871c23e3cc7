"""The secret under which tests hash values that no state is made of."""

SECRET = bytes(range(16))

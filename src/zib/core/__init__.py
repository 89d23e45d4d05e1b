"""The ground everything stands on: specs, dispatch, random streams, compiled code, saved data."""

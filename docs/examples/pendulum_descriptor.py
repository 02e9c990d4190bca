"""A descriptor for Gymnasium's Pendulum-v1: its mean height and its mean speed."""


def height_and_speed(env, observation):
    height, _, speed = observation
    return [height, abs(speed)]

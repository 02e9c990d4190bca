"""ROS 2 node that runs a switcher of `elites export RUN switcher.safetensors --switcher`.

It needs rclpy and std_msgs, and no messages of its own. All topics are Float32MultiArray:
`observation` and `descriptor` come in, `action` goes out, one for each observation. Start it with
the file's name and the first descriptor, in task units: python ros2_policy.py FILE 0.8 0.2
"""

import sys
import time

import numpy as np
import rclpy
from rclpy.node import Node
from run_switcher import Switcher
from std_msgs.msg import Float32MultiArray


class PolicyNode(Node):
    """Node that answers every observation with an action, and logs its mean latency."""

    def __init__(self, path, descriptor):
        super().__init__("elites_policy")
        self.switcher, self.seconds, self.count = Switcher(path), 0.0, 0
        self.actions = self.create_publisher(Float32MultiArray, "action", 1)
        self.create_subscription(Float32MultiArray, "observation", self.act, 1)
        self.create_subscription(Float32MultiArray, "descriptor", self.switch, 1)
        self.switch(Float32MultiArray(data=descriptor))

    def switch(self, message):
        """Choose the policy that is known to come nearest to a descriptor."""
        self.policy, error = self.switcher.choose(np.array(message.data, np.float32))
        self.get_logger().info(f"descriptor {list(message.data)}: known error {error:.4g}")

    def act(self, message):
        """Publish the action at an observation."""
        begun = time.perf_counter()
        action = self.policy(np.array(message.data, np.float32))
        self.actions.publish(Float32MultiArray(data=action.tolist()))
        self.seconds, self.count = self.seconds + time.perf_counter() - begun, self.count + 1
        if self.count % 1000 == 0:
            mean = 1e6 * self.seconds / self.count
            self.get_logger().info(f"{mean:.1f} microseconds for one action")


if __name__ == "__main__":
    rclpy.init()
    rclpy.spin(PolicyNode(sys.argv[1], [float(text) for text in sys.argv[2:]]))

/* Run a policy written by `elites export RUN policy.h`: cc -O2 run_exported.c -lm && ./a.out */
#include <stdio.h>
#include <time.h>
#include "policy.h"

int main(void)
{
    float observation[POLICY_OBSERVATION_SIZE] = {0}, action[POLICY_ACTION_SIZE];
    clock_t begun = clock();
    for (int i = 0; i < 10000; i++) {
        observation[0] = 0.0001f * (float)i; /* on a robot: read its sensors */
        policy(observation, action);         /* on a robot: send the action to its motors */
    }
    double microseconds = 100.0 * (double)(clock() - begun) / CLOCKS_PER_SEC;
    for (int i = 0; i < POLICY_ACTION_SIZE; i++) printf("%.7g ", action[i]);
    printf("\n%.2f microseconds for one action\n", microseconds);
}

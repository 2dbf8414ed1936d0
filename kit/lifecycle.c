/* SPDX-License-Identifier: MIT
 * lifecycle.c - group lifecycle: the query is pure, activation can be repeated, fails whole at every host
 * call, and knows two hosts apart. */
#include <pthread.h>
#include <stdio.h>

#include "kit/kit.h"

static void load(kit_plugin *p) {
  bs_error err = BS_ERROR_INIT;
  kit_assert(kit_plugin_load(p, kit.options, &err) == BS_OK, "%s: %s", err.id, err.message);
}

void kit_life_query(const kit_case *c) {
  static kit_plugin p;
  static const uint32_t hosts[] = {BS_ABI_VERSION, 0, BS_ABI_VERSION + 1, 1u << 16, UINT32_MAX};
  (void)c;
  load(&p);
  const bs_plugin_desc first = *p.desc;
  for (size_t i = 0; i < sizeof hosts / sizeof hosts[0]; i++) {
    const bs_plugin_desc *again = p.query(hosts[i], 0);
    kit_assert(again == NULL || again == p.desc, "query gives another descriptor for host ABI 0x%x",
               hosts[i]);
    kit_assert(memcmp(p.desc, &first, sizeof first) == 0, "the descriptor changes by a query");
  }
  kit_plugin_open(&p);
  kit_plugin_deactivate(&p);
  kit_assert(p.query(BS_ABI_VERSION, 0) == p.desc && memcmp(p.desc, &first, sizeof first) == 0,
             "the descriptor changes by an activation");
}

static void no_blocks(const kit_plugin *p, const char *when) {
  kit_assert(p->host.blocks == 0, "%s leaves %lld blocks of host memory", when, (long long)p->host.blocks);
}

void kit_life_repeat(const kit_case *c) {
  static kit_plugin p;
  bs_error err = BS_ERROR_INIT;
  const int times = kit_full() ? 100 : 20;
  (void)c;
  load(&p);
  for (int i = 0; i < times; i++) {
    kit_assert(kit_plugin_activate(&p, &err) == BS_OK, "activation %d fails: %s: %s", i + 1, err.id,
               err.message);
    kit_assert(p.host.n_things == kit.survey->n_things, "activation %d registers %u things, the first %u",
               i + 1, p.host.n_things, kit.survey->n_things);
    kit_plugin_deactivate(&p);
    no_blocks(&p, "activate and deactivate");
  }
}

/* The n-th host call fails, for every n: nothing may be left, the error has the reason, and the next try
 * works. */
void kit_life_failures(const kit_case *c) {
  static kit_plugin p;
  (void)c;
  load(&p);
  kit_plugin_open(&p);
  const int64_t calls = p.host.calls;
  const uint32_t things = p.host.n_things;
  kit_plugin_deactivate(&p);
  for (int64_t n = 1; n <= calls; n++) {
    bs_error err = BS_ERROR_INIT;
    char when[96];
    p.host.calls = 0;
    p.host.fail_at = n;
    p.host.failed = "?";
    const int32_t rc = kit_plugin_activate(&p, &err);
    snprintf(when, sizeof when, "activate whose host call %lld (%s) fails", (long long)n, p.host.failed);
    kit_assert(rc == BS_OK || err.id[0] != '\0', "%s gives no error id", when);
    kit_assert(rc == BS_OK || err.message[0] != '\0', "%s gives no reason", when);
    kit_plugin_deactivate(&p); /* one that went on without an optional service */
    no_blocks(&p, when);
    p.host.fail_at = 0;
    kit_assert(kit_plugin_activate(&p, &err) == BS_OK, "after an %s it cannot be activated: %s: %s", when,
               err.id, err.message);
    kit_assert(p.host.n_things == things, "after an %s it registers %u things instead of %u", when,
               p.host.n_things, things);
    kit_plugin_deactivate(&p);
  }
}

void kit_life_two_hosts(const kit_case *c) {
  static kit_plugin a, b;
  (void)c;
  kit_plugin_open(&a);
  kit_plugin_open(&b);
  kit_assert(a.host.n_things == b.host.n_things, "two hosts of one process get %u and %u things",
             a.host.n_things, b.host.n_things);
  kit_plugin_deactivate(&a);
  no_blocks(&a, "deactivate next to a second host");
  kit_exercise(&b); /* what the second has must not have gone with the first */
  kit_plugin_deactivate(&b);
  no_blocks(&b, "deactivate after the first host's");
}

/* SPDX-License-Identifier: MIT
 * test_word.c - the one rule of all words: made samples and made disturbances, by the rule alone, through the
 * sampler, and as records keep them. */
#include <sys/wait.h>
#include <unistd.h>

#include "tests/measure/clock.h"
#include "tests/run_tests.h"

static clock_run r;

/* ---- the rule alone ----------------------------------------------------------------------------- */

static const bs_disturbance quiet = {.pairs = 60, .disturbed = 12, .by = {12}, .others = 0.03, .stolen = 0};
static const bs_disturbance busy = {.pairs = 60, .disturbed = 13, .by = {13, 2}, .others = 0.87, .stolen = 0};

static const struct {
  uint32_t word, cause;
  bs_word_facts facts;
  uint32_t to, because;
} rules[] = {
    {BS_WORD_FASTER, 0, {0}, BS_WORD_FASTER, BS_UNCLEAR_NO},
    {BS_WORD_FASTER, 0, {.disturbance = &quiet}, BS_WORD_FASTER, BS_UNCLEAR_NO},
    {BS_WORD_FASTER, 0, {.disturbance = &busy}, BS_WORD_UNCLEAR, BS_UNCLEAR_DISTURBED},
    {BS_WORD_SLOWER, 0, {.disturbance = &busy}, BS_WORD_UNCLEAR, BS_UNCLEAR_DISTURBED},
    {BS_WORD_SAME, 0, {.disturbance = &busy}, BS_WORD_UNCLEAR, BS_UNCLEAR_DISTURBED},
    {BS_WORD_UNCLEAR, BS_UNCLEAR_FEW, {.disturbance = &busy}, BS_WORD_UNCLEAR, BS_UNCLEAR_DISTURBED},
    {BS_WORD_UNCLEAR, BS_UNCLEAR_FEW, {.disturbance = &quiet}, BS_WORD_UNCLEAR, BS_UNCLEAR_FEW},
    {BS_WORD_UNCLEAR, BS_UNCLEAR_FEW, {.oversubscribed = 1}, BS_WORD_UNCLEAR, BS_UNCLEAR_OVERSUBSCRIBED},
    {BS_WORD_FASTER, 0, {.oversubscribed = 1}, BS_WORD_FASTER, BS_UNCLEAR_NO},
    {BS_WORD_FASTER, 0, {.below_bound = 1}, BS_WORD_UNCLEAR, BS_UNCLEAR_BOUND},
    {BS_WORD_FASTER, 0, {.disturbance = &busy, .below_bound = 1}, BS_WORD_UNCLEAR, BS_UNCLEAR_BOUND},
    {BS_WORD_FASTER, 0, {.disturbance = &busy, .equal = 1}, BS_WORD_NONE, BS_UNCLEAR_EQUAL},
    {BS_WORD_SAME, 0, {.equal = 1}, BS_WORD_NONE, BS_UNCLEAR_EQUAL},
    {BS_WORD_NONE, BS_UNCLEAR_EQUAL, {.below_bound = 1}, BS_WORD_NONE, BS_UNCLEAR_EQUAL},
};

START_TEST(one_rule) {
  bs_comparison c = {
      .word = rules[_i].word, .cause = rules[_i].cause, .ratio = 1.1, .low = 1.09, .high = 1.11};
  bs_comparison_settle(&c, &rules[_i].facts);
  ck_assert_uint_eq(c.word, rules[_i].to);
  ck_assert_uint_eq(c.cause, rules[_i].because);
  ck_assert_double_eq(c.ratio, 1.1);          /* the numbers stay */
  bs_comparison_settle(&c, &rules[_i].facts); /* twice is as once */
  ck_assert_uint_eq(c.word, rules[_i].to);
}
END_TEST

START_TEST(words_have_names) {
  for (uint32_t word = 0; word < BS_WORD_NONE; ++word) {
    ck_assert_str_ne(bs_comparison_name(word), "");
    ck_assert_uint_eq(bs_word_turned(bs_word_turned(word)), word);
  }
  ck_assert_str_eq(bs_comparison_name(BS_WORD_UNCLEAR), "UNCLEAR");
  ck_assert_str_eq(bs_comparison_name(BS_WORD_NONE), "");
  ck_assert_str_eq(bs_comparison_name(9), "?");
  ck_assert_uint_eq(bs_word_turned(BS_WORD_FASTER), BS_WORD_SLOWER);
  ck_assert_uint_eq(bs_word_turned(BS_WORD_UNCLEAR), BS_WORD_UNCLEAR);
  for (uint32_t cause = 1; cause <= BS_UNCLEAR_EQUAL; ++cause) ck_assert_str_ne(bs_unclear_name(cause), "");
  ck_assert_str_eq(bs_unclear_name(99), "?");
}
END_TEST

START_TEST(the_cause_is_told_in_numbers) {
  static const struct {
    bs_disturbance d;
    const char *says;
  } told[] = {
      {{60, 58, {58, 3}, 0.87, 0},
       "others took 87 % of the processors' time during the measurement (58 of 60 pairs)"},
      {{60, 40, {0, 40}, 0.12, 0}, "threads waited for a processor in 40 of 60 pairs; others took 12 %"},
      {{60, 20, {0, 0, 20}, 0, 0.081}, "the hypervisor took 8.1 % of the processors' time"},
      {{60, 20, {0, 0, 0, 20}, -1, -1}, "the cgroup's quota ran out in 20 of 60 pairs"}};
  char text[BS_LOOK_SENTENCE];
  for (size_t i = 0; i < sizeof told / sizeof told[0]; ++i) {
    bs_comparison c = {.word = BS_WORD_FASTER};
    bs_comparison_settle(&c, &(bs_word_facts){.disturbance = &told[i].d});
    bs_comparison_next(&c, text, sizeof text);
    ck_assert_msg(strstr(text, told[i].says) == text, "%s", text);
    ck_assert_msg(strstr(text, ": repeat it on a quiet machine") != NULL, "%s", text);
    json_t *kept = bs_disturbance_json(&told[i].d);
    bs_disturbance back;
    bs_disturbance_read(kept, &back);
    ck_assert_int_eq(memcmp(&back, &told[i].d, sizeof back), 0);
    ck_assert(json_is_true(json_object_get(kept, "decides")));
    json_decref(kept);
  }
  bs_disturbance none;
  bs_disturbance_read(NULL, &none); /* a record of before it was told */
  ck_assert(!bs_disturbance_decides(&none));
  ck_assert_str_eq(bs_disturbance_cause(&none, text, sizeof text), "");
}
END_TEST

/* ---- through the sampler ------------------------------------------------------------------------ */

static const double tenth_slower[CLOCK_ARMS] = {1e-3, 1.1e-3};
static const clock_model still = {.noise = 0.002};

/* A tenth is a clear difference: it is FASTER on a machine at rest. */
static const struct {
  const char *what;
  uint32_t cores, threads; /* of the machine, of each arm; 0: the arms do not tell */
  double others, on, off, waited;
  uint64_t switch_every;
  uint32_t word, by;
} seen[] = {
    {"at rest", 2, 2, 0, 0, 0, 0, 0, BS_WORD_FASTER, 0},
    {"a daemon", 2, 2, 0.1, 0, 0, 0, 0, BS_WORD_FASTER, 0},
    {"one of two processors is taken", 2, 2, 1, 0, 0, 0, 0, BS_WORD_UNCLEAR, BS_BY_OTHERS},
    {"two programs", 2, 2, 2, 0, 0, 0, 0, BS_WORD_UNCLEAR, BS_BY_OTHERS},
    {"the one that is left over is taken", 2, 1, 1, 0, 0, 0, 0, BS_WORD_FASTER, 0},
    {"more than is left over", 2, 1, 1.5, 0, 0, 0, 0, BS_WORD_UNCLEAR, BS_BY_OTHERS},
    {"arms that do not tell", 2, 0, 1, 0, 0, 0, 0, BS_WORD_UNCLEAR, BS_BY_OTHERS},
    {"a neighbour on a large machine", 64, 8, 40, 0, 0, 0, 0, BS_WORD_FASTER, 0},
    {"a full large machine", 64, 8, 60, 0, 0, 0, 0, BS_WORD_UNCLEAR, BS_BY_OTHERS},
    {"it comes and goes quickly", 2, 2, 1, 0.05, 0.05, 0, 0, BS_WORD_UNCLEAR, BS_BY_OTHERS},
    {"it comes and goes slowly", 2, 2, 2, 0.6, 1.2, 0, 0, BS_WORD_UNCLEAR, BS_BY_OTHERS},
    {"it was there once, for short", 2, 2, 2, 0.1, 1e9, 0, 0, BS_WORD_FASTER, 0},
    {"pinned to the same processor", 2, 1, 1, 0, 0, 0.5, 1, BS_WORD_UNCLEAR, BS_BY_WAITING},
    {"its own threads take turns", 2, 1, 0, 0, 0, 0.5, 1, BS_WORD_FASTER, 0},
    {"waking takes a while", 2, 1, 1, 0, 0, 0.5, 0, BS_WORD_FASTER, 0},
    {"nothing is told", 0, 2, 2, 0, 0, 0.5, 1, BS_WORD_FASTER, 0},
};

static void use_elsewhere(void *user, bs_process_use *out) {
  (void)user;
  *out = (bs_process_use){.cpu_s = r.world.now}; /* one processor, all the time */
}

static void sample(uint32_t threads, const char *const *configurations, int elsewhere, uint64_t pairs) {
  bs_sampler_arm arms[2];
  for (uint32_t i = 0; i < 2; ++i) {
    r.arm[i] = (clock_arm){&r.world, i, tenth_slower[i]};
    arms[i] = (bs_sampler_arm){.name = i == 0 ? "subject" : "other",
                               .user = &r.arm[i],
                               .batch = clock_batch,
                               .threads = threads,
                               .elsewhere = elsewhere && i == 0 ? use_elsewhere : NULL,
                               .configuration = configurations != NULL ? configurations[i] : NULL};
  }
  r.o.pairs_min = r.o.pairs_max = pairs;
  ck_assert_msg(bs_sampler_run(&r.o, &r.host, arms, 2, &r.s, &r.err) == BS_OK, "%s", r.err.message);
}

static void machine(uint32_t cores, double threads, double others) {
  r.world.cores = cores;
  r.world.threads = threads;
  r.world.others = others;
}

START_TEST(what_others_do_decides) {
  clock_make(&r, &still, 31);
  machine(seen[_i].cores, seen[_i].threads > 0 ? seen[_i].threads : 2, seen[_i].others);
  r.world.on = seen[_i].on;
  r.world.off = seen[_i].off;
  r.world.waited = seen[_i].waited;
  r.world.switch_every = seen[_i].switch_every;
  sample(seen[_i].threads, NULL, 0, 300);
  const bs_comparison *c = &r.s->arm[1].comparison;
  ck_assert_msg(c->word == seen[_i].word, "%s: %s, %s; %zu of %zu pairs", seen[_i].what,
                bs_comparison_name(c->word), bs_unclear_name(c->cause), r.s->disturbance.disturbed,
                r.s->disturbance.pairs);
  ck_assert_uint_eq(r.s->disturbance.pairs, 300);
  if (c->word == BS_WORD_UNCLEAR) {
    ck_assert_uint_eq(c->cause, BS_UNCLEAR_DISTURBED);
    ck_assert_uint_gt(r.s->disturbance.by[seen[_i].by], 60);
    ck_assert(clock_says(r.s, "others took"));
  }
  bs_sampling_free(r.s);
}
END_TEST

/* A process that an arm has beside this one is no other program. */
START_TEST(processes_of_an_arm_are_its_own) {
  for (int told = 0; told < 2; ++told) {
    clock_make(&r, &still, 32);
    machine(2, 1, 1);
    sample(2, NULL, told, 60);
    ck_assert_uint_eq(r.s->arm[1].comparison.word, told ? BS_WORD_FASTER : BS_WORD_UNCLEAR);
    ck_assert_double_eq_tol(r.s->disturbance.others, told ? 0 : 0.5, 1e-6);
    bs_sampling_free(r.s);
  }
}
END_TEST

START_TEST(equal_sides_have_no_word) {
  static const char *const texts[][2] = {{"a", "a"}, {"a", "b"}, {NULL, NULL}, {"a", NULL}};
  for (size_t i = 0; i < sizeof texts / sizeof texts[0]; ++i) {
    clock_make(&r, &still, 33);
    sample(1, texts[i], 0, 60);
    const bs_comparison *c = &r.s->arm[1].comparison;
    json_t *kept = bs_sampling_comparison_json(r.s, 1);
    ck_assert_uint_eq(c->word, i == 0 ? BS_WORD_NONE : BS_WORD_FASTER);
    ck_assert_double_eq_tol(c->ratio, 1.1, 0.01);
    ck_assert(json_is_null(json_object_get(kept, "word")) == (i == 0));
    if (i == 0)
      ck_assert_str_eq(json_string_value(json_object_get(kept, "cause")),
                       "both sides are the same configuration");
    json_decref(kept);
    bs_sampling_free(r.s);
  }
}
END_TEST

/* ---- what /proc tells --------------------------------------------------------------------------- */

START_TEST(others_are_what_is_left) {
  double doubt = 0;
  bs_load a = {.clock = 10, .cores = 4, .total = 100, .idle = 50, .own = 5, .stolen = 1}, b = a;
  b.clock += 2; /* 8 processor seconds: 3 idle, 1 stolen, 2.5 own, 1.5 of others */
  b.total += 8;
  b.idle += 3;
  b.stolen += 1;
  b.own += 2.5;
  ck_assert_double_eq_tol(bs_load_others(&a, &b, &doubt), 0.75, 1e-12);
  ck_assert(doubt > 0 && doubt < 0.05); /* whole ticks of 10 ms */
  b.own += 5;                           /* more than there was: ticks */
  ck_assert_double_eq(bs_load_others(&a, &b, &doubt), 0);
  ck_assert_double_lt(bs_load_others(&a, &a, &doubt), 0); /* no time has passed */
  b.total = a.total;                                      /* a kernel that counts nothing */
  ck_assert_double_lt(bs_load_others(&a, &b, &doubt), 0);
}
END_TEST

/* A process that works uses time; one that is gone tells nothing. */
START_TEST(a_process_tells_what_it_used) {
  bs_process_use before, after, gone;
  volatile double sink = 0;
  const pid_t gone_pid = fork();
  if (gone_pid == 0) _exit(0);
  ck_assert_int_eq(waitpid(gone_pid, NULL, 0), gone_pid);
  bs_process_use_read(0, &before);
  for (;;) {
    for (int i = 0; i < 100000; ++i) sink = sink + i;
    bs_process_use_read(0, &after);
    if (after.cpu_s > before.cpu_s) break;
  }
  bs_process_use_read(gone_pid, &gone);
  ck_assert_double_eq(gone.cpu_s, 0);
  ck_assert(gone.waited_s < 0 || gone.waited_s == 0);
}
END_TEST

int main(void) {
  const test_case tests[] = {{one_rule, TEST_COUNT(rules)},
                             {words_have_names},
                             {the_cause_is_told_in_numbers},
                             {what_others_do_decides, TEST_COUNT(seen)},
                             {processes_of_an_arm_are_its_own},
                             {equal_sides_have_no_word},
                             {others_are_what_is_left},
                             {a_process_tells_what_it_used},
                             {0}};
  return run_tests("word", tests, (test_setup){0});
}

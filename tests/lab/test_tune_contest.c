/* SPDX-License-Identifier: MIT
 * test_tune_contest.c - the contest of implementations on synthetic clocks: it chooses what is faster by the
 * margin and was so twice, never what only looked so once; who fails is out. */
#include "core/base/rng.h"
#include "lab/case/ask.h"
#include "lab/tune/contest.h"
#include "tests/lab/lab_test.h"
#include "tests/run_tests.h"

enum { MOST = 5 };

typedef struct player {
  double seconds, second_look; /* of one call; second_look: from the second opening on, 0: the same */
  int fails_to_open, fails_at; /* at that batch; 0: never */
  int opened, batches;
  int fails_to_open_at; /* that opening; 0: none */
  double lucky;         /* every third opening has this time; 0: the same */
  double noise;         /* half width, uniform */
  uint64_t drawn;
  const char *runs; /* what it is; NULL: not told */
} player;

static player players[MOST];
static uint32_t winner;
static json_t *results;
static double now;
static int open_now, most_open, anew;
static double others;   /* processors of two that other programs have, as the host tells */
static uint32_t needed; /* threads of each arm */
static const char *const names[MOST] = {"default", "a", "b", "c", "d"};

static double clock_now(void *user) {
  (void)user;
  return now;
}

/* One of two processors is the arms' own. */
static void disturb(void *user, bs_disturb *out) {
  (void)user;
  *out = (bs_disturb){.load = {.clock = 1 + now, .cores = 2, .total = 1 + 2 * now, .own = now}, .waited = -1};
  out->load.idle = now * (1 - others);
}

static int32_t batch(void *user, uint64_t lead, uint64_t n, bs_sample *out, bs_error *err) {
  player *p = user;
  uint32_t bits;
  if (p->fails_at > 0 && ++p->batches >= p->fails_at)
    return bs_error_set(err, BS_INTERNAL, "TEST-BATCH", "this batch fails");
  bs_rng_bits(1, 2 + (uint64_t)(p - players), p->drawn++, 1, &bits);
  const int lucky = p->lucky > 0 && p->opened % 3 == 1;
  const double base = p->second_look > 0 && p->opened > 1 ? p->second_look : lucky ? p->lucky : p->seconds;
  out->seconds = base * (1.0 + p->noise * (2.0 * bits / 4294967296.0 - 1.0));
  now += out->seconds * (double)(lead + n);
  return BS_OK;
}

static int32_t open_arm(void *user, uint32_t arm, bs_sampler_arm *out, bs_error *err) {
  (void)user;
  player *p = &players[arm];
  if (p->fails_to_open) return bs_error_set(err, BS_NO_MEMORY, "TEST-OPEN", "this one does not open");
  if (++p->opened == p->fails_to_open_at)
    return bs_error_set(err, BS_INTERNAL, "TEST-ANEW", "opening %d fails", p->opened);
  if (++open_now > most_open) most_open = open_now;
  *out = (bs_sampler_arm){
      .name = names[arm], .user = p, .batch = batch, .threads = needed, .configuration = p->runs};
  return BS_OK;
}

static void close_arm(void *user, uint32_t arm) {
  (void)user, (void)arm;
  open_now--;
}

static void tear_down(void) {
  json_decref(results);
  results = NULL;
  anew = 0;
  needed = 0;
}

/* `list` against each other; what it gives is there until the next one. */
static int32_t run(const player *list, uint32_t n, bs_error *err) {
  const bs_contest contest = {.n = n, .names = names, .open = open_arm, .close = close_arm, .anew = anew};
  const bs_sampler_host host = {.now = clock_now, .disturb = needed > 0 ? disturb : NULL};
  memcpy(players, list, n * sizeof *list);
  json_decref(results);
  results = NULL;
  winner = 9;
  now = 0;
  const int32_t rc = bs_contest_run(&contest, 30.0, 0.02, &host, &winner, &results, err);
  ck_assert_int_eq(open_now, 0);
  ck_assert_int_le(most_open, 2);
  return rc;
}

static void play(const player *list, uint32_t n) {
  bs_error err = BS_ERROR_INIT;
  ck_assert_msg(run(list, n, &err) == BS_OK, "%s", err.message);
  ck_assert_uint_eq(json_array_size(results), n - 1);
  for (uint32_t i = 1; i < n; i++)
    ck_assert_str_eq(json_string_value(json_object_get(json_array_get(results, i - 1), "name")), names[i]);
}

/* Its word, or why it failed; "": neither. */
static const char *word(const json_t *row) {
  const char *failed = bs_tune_text(row, "failed");
  return failed[0] != '\0' ? failed : bs_tune_text(row, "word");
}

/* Seconds of all arms, the default's first; what the others' rows say, and the winner's again: "" no look. */
static const struct {
  player list[MOST];
  uint32_t winner;
  const char *words[MOST - 1], *again;
} contests[] = {
    /* the fastest wins after a second look */
    {{{1e-3}, {1.2e-3}, {0.9e-3}, {0.8e-3}}, 3, {"SLOWER", "FASTER", "FASTER"}, "FASTER"},
    /* within the margin the default stays */
    {{{1e-3}, {0.985e-3}, {1e-3}}, 0, {"SAME", "SAME"}, ""},
    /* the winner's curse: it was fast while it was chosen */
    {{{1e-3}, {0.8e-3, .second_look = 1e-3}}, 0, {"FASTER"}, "SAME"},
    /* who fails is out */
    {{{1e-3}, {0.5e-3, .fails_to_open = 1}, {0.5e-3, .fails_at = 12}, {0.9e-3}},
     3,
     {"[TEST-OPEN] this one does not open", "[TEST-BATCH] this batch fails", "FASTER"},
     "FASTER"},
};

START_TEST(who_wins) {
  const player *list = contests[_i].list;
  uint32_t n = 0;
  while (n < MOST && list[n].seconds > 0) n++;
  play(list, n);
  ck_assert_uint_eq(winner, contests[_i].winner);
  for (uint32_t i = 0; i + 1 < n; i++) {
    const json_t *row = json_array_get(results, i), *ratio = json_object_get(row, "ratio");
    const int looked = i + 2 == n; /* the last is the fastest of each list that has one */
    ck_assert_str_eq(word(row), contests[_i].words[i]);
    ck_assert_str_eq(word(json_object_get(row, "again")), looked ? contests[_i].again : "");
    if (ratio != NULL)
      ck_assert_double_eq_tol(json_number_value(ratio), list[0].seconds / list[i + 1].seconds, 1e-9);
  }
}
END_TEST

/* A place in memory where it is fast is not its speed. Were both not opened anew, each look would see one
 * place alone. */
START_TEST(a_lucky_build_does_not_win) {
  for (anew = 0; anew < 2; anew++) {
    const player list[] = {{.seconds = 1e-3}, {.seconds = 1e-3, .lucky = 0.8e-3}};
    play(list, 2);
    ck_assert_str_eq(word(json_array_get(results, 0)), anew ? "UNCLEAR" : "FASTER");
    ck_assert_uint_eq(winner, 0);
  }
}
END_TEST

/* While both are opened anew: who cannot be is out, and the next one meets the default. */
START_TEST(who_fails_when_opened_anew_is_out) {
  anew = 1;
  for (int at = 2; at < 4; at++) {
    const player list[] = {
        {.seconds = 1e-3}, {.seconds = 0.5e-3, .fails_to_open_at = at}, {.seconds = 0.9e-3}};
    play(list, 3);
    ck_assert_uint_eq(winner, 2);
    ck_assert_int_gt(players[0].opened, 3);
    ck_assert_ptr_nonnull(json_object_get(json_array_get(results, 0), "failed"));
    bs_error err = BS_ERROR_INIT;
    const player standard[] = {{.seconds = 1e-3, .fails_to_open_at = at}, {.seconds = 1e-3}};
    ck_assert_int_eq(run(standard, 2, &err), BS_INTERNAL);
    ck_assert_str_eq(err.id, "TEST-ANEW");
  }
}
END_TEST

/* What fails for want of memory or time may run tomorrow; what fails otherwise will not. */
START_TEST(some_results_do_not_last) {
  const player list[] = {{.seconds = 1e-3},
                         {.seconds = 0.5e-3, .fails_to_open = 1},
                         {.seconds = 0.5e-3, .fails_at = 12},
                         {.seconds = 1.2e-3}};
  play(list, 4);
  for (int hurried = 0; hurried < 2; hurried++) {
    const char *why = bs_contest_passing(json_array_get(results, 0), hurried);
    ck_assert_ptr_nonnull(why);
    ck_assert_str_eq(why, "[TEST-OPEN] this one does not open");
    ck_assert_ptr_null(bs_contest_passing(json_array_get(results, 1), hurried));
    ck_assert_ptr_null(bs_contest_passing(json_array_get(results, 2), hurried));
  }
  /* The time is up before the noise is averaged away. */
  const player noisy[] = {{.seconds = 1, .noise = 0.3}, {.seconds = 1, .noise = 0.3}};
  play(noisy, 2);
  json_t *row = json_array_get(results, 0);
  ck_assert_str_eq(word(row), "UNCLEAR");
  ck_assert_str_eq(json_string_value(json_object_get(row, "stopped_by")), "seconds");
  ck_assert_ptr_nonnull(bs_contest_passing(row, 1));
  ck_assert_ptr_null(bs_contest_passing(row, 0));
  json_object_set_new(row, "stopped_by", json_string("max_pairs")); /* more time would change nothing */
  ck_assert_ptr_null(bs_contest_passing(row, 1));
  /* The second look decides. */
  json_object_set_new(row, "word", json_string("FASTER"));
  ck_assert_ptr_null(bs_contest_passing(row, 1));
  json_object_set_new(row, "again", json_pack("{s:s,s:b}", "failed", "no memory", "passing", 1));
  ck_assert_str_eq(bs_contest_passing(row, 0), "no memory");
}
END_TEST

START_TEST(the_default_must_run) {
  bs_error err = BS_ERROR_INIT;
  const player ends[] = {{.seconds = 1e-3, .fails_at = 5}, {.seconds = 1e-3}},
               closed[] = {{.fails_to_open = 1}, {0}};
  ck_assert_int_eq(run(ends, 2, &err), BS_INTERNAL);
  ck_assert_str_eq(err.id, "TEST-BATCH");
  ck_assert_ptr_null(results);
  ck_assert_int_eq(run(closed, 2, &err), BS_NO_MEMORY);
}
END_TEST

/* What an arm tells of itself reaches the rule of words. */
START_TEST(a_busy_machine_and_a_twin_decide_nothing) {
  const player list[] = {
      {.seconds = 1e-3, .runs = "x"}, {.seconds = 0.8e-3, .runs = "y"}, {.seconds = 0.5e-3, .runs = "x"}};
  static const struct {
    uint32_t needed;
    double others;
    const char *word;
  } cases[] = {{1, 1, "FASTER"}, {2, 1, "UNCLEAR"}, {2, 0, "FASTER"}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    needed = cases[i].needed;
    others = cases[i].others;
    play(list, 3);
    const json_t *row = json_array_get(results, 0);
    const int busy = strcmp(cases[i].word, "UNCLEAR") == 0;
    ck_assert_str_eq(word(row), cases[i].word);
    ck_assert_uint_eq(winner, busy ? 0 : 1);
    ck_assert_str_eq(bs_tune_text(row, "cause"), busy ? "machine disturbed" : "");
    const char *why = bs_contest_passing(row, 0); /* tomorrow the machine may be at rest */
    ck_assert(busy ? why != NULL && strncmp(why, "others took 50 %", 16) == 0 : why == NULL);
    ck_assert_str_eq(word(json_array_get(results, 1)), ""); /* the default itself, however fast it looks */
  }
}
END_TEST

/* Noise of 3 % around the same time: nobody wins, whatever the draw. */
START_TEST(noise_alone_never_wins) {
  for (uint64_t trial = 0; trial < 20; trial++) {
    player list[MOST];
    for (size_t i = 0; i < MOST; i++)
      list[i] = (player){.seconds = 1e-3, .noise = 0.03, .drawn = trial << 32};
    play(list, MOST);
    ck_assert_uint_eq(winner, 0);
  }
}
END_TEST

int main(void) {
  const test_case tests[] = {{who_wins, TEST_COUNT(contests)},
                             {a_lucky_build_does_not_win},
                             {who_fails_when_opened_anew_is_out},
                             {some_results_do_not_last},
                             {the_default_must_run},
                             {a_busy_machine_and_a_twin_decide_nothing},
                             {noise_alone_never_wins},
                             {0}};
  return run_tests("tune_contest", tests, (test_setup){.after = tear_down});
}

/* SPDX-License-Identifier: MIT
 * embed.c - run one linear layer through libblockshock: two ranks, the blockshock method, weights from
 * memory; compare with a plain product. Build: make (uses pkg-config blockshock). Exit 0 when the outputs
 * agree. */
#include <blockshock/blockshock.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { B = 4, N = 24, K = 32, RANKS = 2 };

typedef struct job {
  bs_layer_spec spec;
  bs_source x, w, bias;
  float y[RANKS][B * N];
} job;

static int32_t rank_main(bs_rank *rank, void *arg, bs_error *err) {
  job *j = arg;
  const bs_rank_api *api = bs_rank_get_api();
  bs_layer *layer = NULL;
  bs_tensor x, y;
  bs_tensor_desc desc;
  memset(&x, 0, sizeof x);
  memset(&y, 0, sizeof y);
  memset(&desc, 0, sizeof desc);
  desc.struct_size = sizeof desc;
  desc.dtype = BS_F32;
  desc.rank = 2;
  desc.dims[0] = B;
  desc.dims[1] = K;
  int32_t rc = bs_layer_build(rank, "blockshock", &j->spec, &j->w, &j->bias, &layer, err);
  if (rc == BS_OK) rc = api->tensor_alloc(rank, &desc, BS_LIFE_ACTIVATION, &x, err);
  if (rc == BS_OK) rc = api->tensor_read(rank, &j->x, 0, NULL, &x, err);
  desc.dims[1] = N;
  if (rc == BS_OK) rc = api->tensor_alloc(rank, &desc, BS_LIFE_ACTIVATION, &y, err);
  if (rc == BS_OK) rc = bs_layer_forward(layer, &x, &y, NULL, err);
  if (rc == BS_OK) rc = bs_rank_copy_out(rank, &y, j->y[api->rank(rank)], err);
  if (y.data) api->tensor_free(rank, &y);
  if (x.data) api->tensor_free(rank, &x);
  bs_layer_free(layer);
  return rc;
}

static double worst_difference(const job *j, const float *x, const float *w, const float *bias) {
  double worst = 0.0;
  for (int r = 0; r < RANKS; ++r) {
    for (int b = 0; b < B; ++b) {
      for (int n = 0; n < N; ++n) {
        double want = bias[n];
        for (int k = 0; k < K; ++k) want += (double)x[b * K + k] * w[n * K + k];
        worst = fmax(worst, fabs(want - j->y[r][b * N + n]));
      }
    }
  }
  return worst;
}

int main(int argc, char **argv) {
  static const char usage[] =
      "usage: embed\nRuns a layer on two ranks. Exit codes: 0 it is right; 6 it is wrong.\n";
  const int asked = argc == 2 && strcmp(argv[1], "--help") == 0;
  if (argc > 1) return fputs(usage, asked ? stdout : stderr), asked ? 0 : 2;
  static float x[B * K], w[N * K], bias[N];
  static job j;
  bs_error err;
  char text[1024];
  for (int i = 0; i < B * K; ++i) x[i] = (float)((i * 37) % 19 - 9) / 8.0f;
  for (int i = 0; i < N * K; ++i) w[i] = (float)((i * 53) % 23 - 11) / 16.0f;
  for (int i = 0; i < N; ++i) bias[i] = (float)i / 4.0f;
  memset(&err, 0, sizeof err);
  memset(&j, 0, sizeof j);
  j.spec.struct_size = sizeof j.spec;
  j.spec.has_bias = 1;
  j.spec.B = B;
  j.spec.N = N;
  j.spec.K = K;
  j.spec.x_dtype = j.spec.w_dtype = j.spec.y_dtype = BS_F32;
  bs_source_from_memory(x, BS_F32, B, K, K, &j.x, &err);
  bs_source_from_memory(w, BS_F32, N, K, K, &j.w, &err);
  bs_source_from_memory(bias, BS_F32, 1, N, N, &j.bias, &err);

  bs_context *context = NULL;
  bs_world *world = NULL;
  bs_world_options options;
  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  options.world_size = RANKS;
  options.backend = "cpu";
  int32_t rc = bs_context_open(NULL, &context, &err);
  if (rc == BS_OK) rc = bs_world_create(context, &options, &world, &err);
  if (rc == BS_OK) rc = bs_world_run(world, rank_main, &j, &err);
  if (rc == BS_OK) printf("ran: %s", bs_world_algorithms(world));
  bs_world_destroy(world);
  bs_context_close(context);
  bs_source_release(&j.x);
  bs_source_release(&j.w);
  bs_source_release(&j.bias);
  if (rc != BS_OK) {
    bs_error_format(&err, "embed", text, sizeof text);
    fprintf(stderr, "%s\n", text);
    return bs_status_exit_code(rc);
  }
  const double worst = worst_difference(&j, x, w, bias);
  printf("\n%d ranks, Y %d x %d, worst difference from the plain product %.3g\n", RANKS, B, N, worst);
  return worst < 1e-4 ? 0 : 6;
}

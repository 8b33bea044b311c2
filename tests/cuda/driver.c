// A GPU's driver on a machine without one: what CuPy calls of libcuda, handed to functions of the test.
#include <stdint.h>
#include <string.h>

typedef int64_t word;
static word (*on_load)(const void*);
static word (*on_name)(word, const char*);
static int (*on_set)(word, int, int);
static int (*on_launch)(word, const word* shape, const word* rest, void** params);
enum { INVALID_VALUE = 1, INVALID_IMAGE = 200, NOT_FOUND = 500 };

void vg_answer(void* load, void* name, void* set, void* launch) {
  on_load = load, on_name = name, on_set = set, on_launch = launch;
}
int cuGetErrorName(int error, const char** text) { return *text = "CUDA_ERROR", error == 0; }
int cuGetErrorString(int error, const char** text) { return *text = "refused by the test's driver", error == 0; }
int cuModuleLoadData(word* module, const void* image) {
  if (memcmp(image, "\177ELF", 4)) return INVALID_IMAGE;
  return (*module = on_load(image)) ? 0 : INVALID_IMAGE;
}
int cuModuleGetFunction(word* function, word module, const char* name) {
  return (*function = on_name(module, name)) ? 0 : NOT_FOUND;
}
int cuFuncSetAttribute(word function, int attribute, int value) { return on_set(function, attribute, value); }
static int launch(word f, const word* shape, unsigned room, word stream, void** params, int together, void** extra) {
  const word rest[] = {room, stream, together};
  return extra || !params ? INVALID_VALUE : on_launch(f, shape, rest, params);
}
int cuLaunchKernel(word f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned room,
                   word stream, void** params, void** extra) {
  const word shape[] = {gx, gy, gz, bx, by, bz};
  return launch(f, shape, room, stream, params, 0, extra);
}
int cuLaunchCooperativeKernel(word f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                              unsigned room, word stream, void** params) {
  const word shape[] = {gx, gy, gz, bx, by, bz};
  return launch(f, shape, room, stream, params, 1, 0);
}

foreach(module histogram arrival workload verdict)
  baton_unit(test_${module} LIBS bench_core)
endforeach()

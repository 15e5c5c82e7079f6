foreach(module histogram arrival workload verdict record report)
  baton_unit(test_${module} LIBS bench_core)
endforeach()

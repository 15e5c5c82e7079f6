foreach(module histogram arrival workload verdict record)
  baton_unit(test_${module} LIBS bench_core)
endforeach()
